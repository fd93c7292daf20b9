package agents

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/safety"
)

// graphObserver watches all agents in all groups.
type graphObserver struct {
	groups []*observedGroup
	// end ends the observation.
	end func()
}

// observedGroup is what the streams of the five agents report about one group.
type observedGroup struct {
	graph    *graph
	settings agentcluster.Group
	cluster  *agentcluster.Cluster
	names    []string

	mutex sync.Mutex
	// views are the last states that the agents reported.
	views [graphAgents]group.Leader
	// counting: the group has had the time to settle. since is when the time was counted last.
	counting bool
	since    time.Time
	// observed is the sum of the time for which members (Available) or the group (other
	// modes) were observed, and vacant the part of it without a coordinator.
	observed, vacant time.Duration
	// tenures are the last ones that the agents followed (Available), or the last one of the group, at index 0 (other
	// modes). changes are those of which the policy wasn't the cause, and preemptions the others.
	tenures     [graphAgents]tenure
	changes     []string
	preemptions int
	// quiet: the last tenure began long before the group was observed, so that the campaigns
	// of members that don't reach the new coordinator were over.
	quiet       bool
	tenureSince time.Time
	// campaignMessages counts messages that aren't sent while nothing changes, by kind, and
	// sentBefore those from before the group was observed.
	campaignMessages, sentBefore map[string]int
	errors                       []error
}

// observe starts to watch.
func observe(t *testing.T, cluster *agentcluster.Cluster, g *graph, groups []agentcluster.Group) *graphObserver {
	o := &graphObserver{}
	ctx, cancel := context.WithCancel(t.Context())
	var streams sync.WaitGroup
	for _, settings := range groups {
		observed := &observedGroup{graph: g, settings: settings, cluster: cluster.In(settings.Name), names: cluster.Names()}
		o.groups = append(o.groups, observed)
		for agent := range observed.names {
			streams.Go(func() { observed.watch(ctx, agent) })
		}
	}
	o.end = func() {
		cancel()
		streams.Wait()
	}
	t.Cleanup(o.end)
	return o
}

// watch reads the stream of one agent. Until the agent has started, it tries again.
func (o *observedGroup) watch(ctx context.Context, agent int) {
	connected := false
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for ctx.Err() == nil {
		err := o.cluster.Watch(ctx, o.names[agent], func(event agentcluster.Observation) {
			connected = true
			o.update(ctx, agent, event.Leader)
		})
		if connected && err != nil {
			o.mutex.Lock()
			o.errors = append(o.errors, err)
			o.mutex.Unlock()
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

func (o *observedGroup) update(ctx context.Context, agent int, state group.Leader) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.count(time.Now())
	o.views[agent] = state
	if o.settings.Safety.Mode == "Available" {
		if state.Coordinator != "" {
			o.recordTenure(&o.tenures[agent], tenure{state.Coordinator, state.Term})
		}
		return
	}
	if !state.Leading {
		return
	}
	for other := range o.views {
		if other != agent && o.views[other].Leading {
			if former := o.views[other]; stillLead(ctx, o.cluster, former, state) {
				o.errors = append(o.errors, fmt.Errorf("%stwo coordinators: %s with token %d and %s with token %d",
					safety.Violated, former.Self, former.Token, state.Self, state.Token))
			}
		}
	}
	o.recordTenure(&o.tenures[0], tenure{state.Self, state.Term})
}

// tenure is that of a coordinator.
type tenure struct {
	coordinator string
	term        uint64
}

// recordTenure counts a change of the coordinator. A higher member may take the office
// over, as the policy says: with WhenStable one after the other does, each after a second.
func (o *observedGroup) recordTenure(last *tenure, next tenure) {
	former := *last
	*last = next
	if former != next {
		o.tenureSince = time.Now()
	}
	switch {
	case !o.counting || former == next:
	case o.settings.Preemption.Policy != "Never" && next.coordinator > former.coordinator:
		o.preemptions++
	default:
		o.changes = append(o.changes, fmt.Sprintf("%v to %v", former, next))
	}
}

// count adds the time since the last call.
func (o *observedGroup) count(now time.Time) {
	elapsed := now.Sub(o.since)
	o.since = now
	if !o.counting {
		return
	}
	if o.settings.Safety.Mode != "Available" {
		o.observed += elapsed
		if !slices.ContainsFunc(o.views[:], func(l group.Leader) bool { return l.Leading }) {
			o.vacant += elapsed
		}
		return
	}
	for agent := range o.views {
		o.observed += elapsed
		if !o.reachesCoordinator(agent) {
			o.vacant += elapsed
		}
	}
}

// reachesCoordinator reports whether an agent has a coordinator that leads and with which it exchanges packets.
func (o *observedGroup) reachesCoordinator(agent int) bool {
	at := slices.Index(o.names, o.views[agent].Coordinator)
	return at >= 0 && o.graph.both(agent, at) && o.views[at].Leading
}

// agreed returns an error until all agents agree on a coordinator, in all groups. That is
// the highest one, unless another one started first and isn't pre-empted.
func (o *graphObserver) agreed(context.Context) error {
	for _, each := range o.groups {
		if err := each.agreed(); err != nil {
			return err
		}
	}
	return nil
}

func (o *observedGroup) agreed() error {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	highest := o.names[graphAgents-1]
	coordinator, leads := o.views[0].Coordinator, false
	for agent := range o.views {
		view := &o.views[agent]
		if view.Coordinator != coordinator || coordinator != highest && o.settings.Preemption.Policy != "Never" {
			return fmt.Errorf("%s: %s follows %q, %s follows %q", o.describe(), o.names[0], coordinator,
				o.names[agent], view.Coordinator)
		}
		leads = leads || view.Leading && view.Self == coordinator
	}
	if !leads {
		return fmt.Errorf("%s: %q doesn't lead", o.describe(), coordinator)
	}
	return nil
}

// run waits until the groups must have settled, and then counts for a while. In groups in
// which one member after the other takes over when it is stable, that is later.
func (o *graphObserver) run(ctx context.Context) error {
	isLate := func(each *observedGroup) bool { return each.settings.Preemption.Policy == "WhenStable" }
	isEarly := func(each *observedGroup) bool { return !isLate(each) }
	if err := o.wait(ctx, graphSettled); err != nil {
		return err
	}
	if err := o.startCounting(ctx, isEarly); err != nil {
		return err
	}
	if err := o.wait(ctx, graphStable); err != nil {
		return err
	}
	if err := o.startCounting(ctx, isLate); err != nil {
		return err
	}
	if err := o.wait(ctx, graphObserved); err != nil {
		return err
	}
	return o.stopCounting(ctx)
}

func (o *graphObserver) wait(ctx context.Context, lasting time.Duration) error {
	select {
	case <-time.After(lasting):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *graphObserver) startCounting(ctx context.Context, in func(*observedGroup) bool) error {
	sent, err := o.countCampaignMessages(ctx)
	for _, each := range o.groups {
		if !in(each) {
			continue
		}
		each.sentBefore = sent[each.settings.Name]
		each.mutex.Lock()
		each.count(time.Now())
		each.counting, each.quiet = true, time.Since(each.tenureSince) > graphQuiet
		each.mutex.Unlock()
	}
	return err
}

func (o *graphObserver) stopCounting(ctx context.Context) error {
	for _, each := range o.groups {
		each.mutex.Lock()
		each.count(time.Now())
		each.counting = false
		each.mutex.Unlock()
	}
	sent, err := o.countCampaignMessages(ctx)
	for _, each := range o.groups {
		each.campaignMessages = map[string]int{}
		for kind, count := range sent[each.settings.Name] {
			if sent := count - each.sentBefore[kind]; sent > 0 {
				each.campaignMessages[kind] = sent
			}
		}
	}
	return err
}

// countCampaignMessages returns, for each group and kind, how many messages all agents have
// sent that are part of an election, or give up a claim or a tenure.
func (o *graphObserver) countCampaignMessages(ctx context.Context) (map[string]map[string]int, error) {
	counts := map[string]map[string]int{}
	cluster := o.groups[0].cluster
	for _, name := range cluster.Names() {
		metrics, err := cluster.Metrics(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, sample := range sentSamples.FindAllStringSubmatch(metrics, -1) {
			group, kind := sample[1], sample[2]
			if slices.Contains([]string{"BEAT", "GRANT", "DENY", "PROBE"}, kind) {
				continue
			}
			count, err := strconv.Atoi(sample[3])
			if err != nil {
				return nil, err
			}
			if counts[group] == nil {
				counts[group] = map[string]int{}
			}
			counts[group][kind] += count
		}
	}
	return counts, nil
}

var sentSamples = regexp.MustCompile(`(?m)^conclave_messages_sent_total\{group="(.*)",kind="(.*)"\} (\d+)$`)

func (o *observedGroup) describe() string {
	return fmt.Sprintf("%s, %s, %s", o.settings.Safety.Mode, o.settings.Algorithm, o.settings.Preemption.Policy)
}

// sum is what groups of a mode have in common.
type sum struct {
	observed, vacant                       time.Duration
	changes, preemptions, campaignMessages int
}

// check returns what is wrong, and a summary. Errors fail the test: no delay of an agent
// is an excuse for two coordinators.
func (o *graphObserver) check(t *testing.T) (problems []string, summary string) {
	t.Helper()
	sums := map[string]sum{}
	for _, each := range o.groups {
		for _, err := range each.errors {
			t.Errorf("%s: %v", each.describe(), err)
		}
		for _, problem := range each.check() {
			problems = append(problems, each.describe()+": "+problem)
		}
		mode := each.settings.Safety.Mode
		all := sums[mode]
		all.observed += each.observed
		all.vacant += each.vacant
		all.changes += len(each.changes)
		all.preemptions += each.preemptions
		for _, count := range each.campaignMessages {
			all.campaignMessages += count
		}
		sums[mode] = all
	}
	for _, mode := range slices.Sorted(maps.Keys(sums)) {
		all := sums[mode]
		summary += fmt.Sprintf(
			"%s: a coordinator for %.3f %% of %s, %d pre-emptions, %d other changes, %d messages of campaigns\n", mode,
			100-100*all.vacant.Seconds()/all.observed.Seconds(), all.observed.Round(time.Second), all.preemptions,
			all.changes, all.campaignMessages)
	}
	return problems, summary
}

// check returns what is wrong in one group.
func (o *observedGroup) check() []string {
	var problems []string
	if o.vacant > o.observed/vacantShare {
		problems = append(problems,
			fmt.Sprintf("got no coordinator for %s of %s; at the end the agents report %+v", o.vacant, o.observed, o.views))
	}
	if o.quiet && o.preemptions == 0 && len(o.campaignMessages) > 0 {
		problems = append(problems, fmt.Sprintf("got messages of campaigns, want none: %v", o.campaignMessages))
	}
	if len(o.changes) > 0 {
		problems = append(problems, fmt.Sprintf("got changes of the coordinator, want none: %v", o.changes))
	}
	return problems
}
