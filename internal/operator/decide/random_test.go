package decide

import (
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

var (
	randomSteps = flag.Int("steps", 200_000, "number of random steps")
	firstSeed   = flag.Uint64("seed", 1, "seed of the first model")
)

// TestRandomSteps makes steps of two replicas of the operator for a group of a model of a cluster. Users edit the
// group, pods and agents come and go, agents elect, lie, lose their state directories, and adopt documents late.
// Replicas use stale copies, have different clocks, lose their connections, and are killed between two actions;
// sometimes both lead.
//
// No two lists can elect at once (checkList), the status goes on only as the schema permits, nothing is written twice,
// no action repeats without a cause, and nothing becomes due before the time at which a step wakes. If the users and
// the agents rest, the group converges.
func TestRandomSteps(t *testing.T) {
	steps := *randomSteps
	if testing.Short() {
		steps = 20_000
	}
	done := map[string]int{}
	for seed := *firstSeed; done["steps"] < steps; seed++ {
		m := newModel(t, seed, done)
		for i := 0; i < 400 && !t.Failed(); i++ {
			m.randomEvent()
			m.stepReplica(m.replicas[m.rng.IntN(2)])
			if m.oneIn(6) {
				m.settle(m.replicas[m.rng.IntN(2)])
			}
		}
		if m.converge(); t.Failed() {
			t.Fatalf("replay it with -run TestRandomSteps -steps 1 -seed %d", seed)
		}
	}
	t.Logf("%v", done)
	for _, what := range []string{
		"status", "lists", "lies", "labels", "eligibility", "leave", "holds", "reads", "by a standby", "waits", "conflicts",
		"waits for a majority",
	} {
		if done[what] == 0 && steps > 10_000 {
			t.Errorf("got no %s in %d steps, so the model doesn't test that", what, done["steps"])
		}
	}
}

// replica is a replica of the operator: what it knows, and its pending actions.
type replica struct {
	memory  Memory
	standby bool
	// group is a copy, of this version.
	group   *v1.ElectionGroup
	version int
	// agents has what it knows about agents, by the UIDs of their pods.
	agents map[string]facts.Agent
	// skew is by how much its clock is ahead.
	skew time.Duration
	// cutOffUntil is until when it isn't connected to any agent, and lostAt since when it has been connected to no
	// majority.
	cutOffUntil, lostAt time.Time

	pending *Actions
	known   *facts.Facts
	stage   int
	// up has the pods that were up and connected when it decided.
	up map[string]bool
}

// stepReplica makes a replica do its next action, or decide.
func (m *model) stepReplica(r *replica) {
	if r.pending == nil {
		m.decide(r)
		return
	}
	switch r.stage++; r.stage {
	case 1:
		m.command(r.pending)
		if r.pending.Status != nil && m.oneIn(8) {
			r.pending = nil // The status can't be written.
			return
		}
		m.writeStatus(r)
	case 2:
		m.push(r.pending)
	default:
		m.label(r.pending)
		r.pending = nil
	}
}

// decide makes a step of a replica, with what it asks for.
func (m *model) decide(r *replica) {
	f := m.facts(r)
	r.known, r.stage, r.up = f, 0, m.upAndConnected()
	for range 5 {
		m.done["steps"]++
		actions, memory := Step(f, r.memory)
		if m.oneIn(32) {
			again, kept := Step(f, r.memory)
			if !reflect.DeepEqual(actions, again) || !reflect.DeepEqual(memory, kept) {
				m.t.Errorf("the same facts led to %+v and %+v", actions, again)
			}
		}
		r.memory = memory
		switch {
		case actions.Read != nil:
			m.done["reads"]++
			f.Confirmed = true
			for _, name := range actions.Read.Pods {
				if f.Fresh[name] = true; m.pods[name] != nil {
					m.see(r, f, name)
				}
			}
		case actions.Hold != nil:
			m.done["holds"]++
			for _, pod := range actions.Hold {
				m.setFinalizers(pod, v1.StopFinalizer("ledger"))
			}
			f.HoldTried = true
		default:
			r.pending = &actions
			m.checkCommands(f, &actions)
			if actions.Status != nil && strings.Contains(fmt.Sprint(actions.Status.Conditions), "WaitingForMembers") {
				m.done["waits for a majority"]++
			}
			return
		}
	}
	m.t.Error("a step asks for the same facts again")
}

// writeStatus writes the status as the API server does: it compares resource versions, and checks the rules of the
// schema.
func (m *model) writeStatus(r *replica) {
	if next := r.pending.Status; next != nil {
		if r.version != m.version {
			m.done["conflicts"]++
			r.pending = nil
			return
		}
		m.done["status"]++
		if r.known.LeaderGrace > 0 {
			m.done["by a standby"]++
		}
		m.checkStatus(r, &m.group.Status, next)
		m.group = m.group.DeepCopy()
		m.group.Status = *next.DeepCopy()
		m.version++
		r.group, r.version = m.group, m.version
	}
	r.memory = r.memory.Applied(r.known, r.pending)
}

// settle lets a replica act alone until nothing is to be done, and checks that this remains so before the time at which
// its last step wakes.
func (m *model) settle(r *replica) {
	if !r.cutOffUntil.IsZero() && m.now.Before(r.cutOffUntil) {
		return
	}
	for rounds := 0; ; rounds++ {
		m.refresh(r)
		m.decide(r)
		if m.t.Failed() || writes(r.pending) == "" {
			break
		}
		if rounds > 10 {
			m.t.Errorf("got no end of writes: %s", writes(r.pending))
			return
		}
		m.applyAll(r)
	}
	if m.t.Failed() {
		return
	}
	now, wake := m.now, r.pending.WakeAt
	r.memory = r.memory.Applied(r.known, r.pending)
	m.now = now.Add(time.Hour)
	if !wake.IsZero() {
		m.done["waits"]++
		m.now = wake.Add(-1 - r.skew)
	}
	memory, agents := r.memory, maps.Clone(r.agents)
	// The age of a pod changes what the cache has.
	if known := m.facts(r); len(known.Pods) == len(r.known.Pods) {
		m.decide(r)
		if what := writes(r.pending); what != "" {
			m.t.Errorf("%s later, and before the step wakes at %s: %s", m.now.Sub(now), wake, what)
		}
	}
	m.now, r.memory, r.agents, r.pending = now, memory, agents, nil
}

// applyAll applies all pending actions of a replica.
func (m *model) applyAll(r *replica) {
	m.command(r.pending)
	if m.writeStatus(r); r.pending != nil {
		m.push(r.pending)
		m.label(r.pending)
	}
	r.pending = nil
}

// writes returns what actions write, or "".
func writes(a *Actions) string {
	var all []string
	if a.Status != nil {
		all = append(all, fmt.Sprintf("status %+v", a.Status))
	}
	if a.Publishes {
		all = append(all, "a document")
	}
	if what := format(a); what != "; ; 0 events" && what != "; none" {
		all = append(all, what)
	}
	if a.Document != nil && len(a.Document.To)+len(a.Document.First) > 0 {
		all = append(all, fmt.Sprint("documents to ", a.Document.To, a.Document.First))
	}
	return strings.Join(all, "; ")
}

// converge lets all pods run, and one replica step at the times that it asks for, until nothing is to be done.
func (m *model) converge() {
	for _, name := range podNames {
		if pod := m.pods[name]; pod == nil || membership.Finished(pod) || pod.DeletionTimestamp != nil {
			m.stopPod(name)
			m.createPod(name)
		}
		m.agentOf(name).connected = true
		m.nodes["node-"+name] = newNode("node-" + name)
	}
	r := m.replicas[0]
	r.standby, r.cutOffUntil, m.now = false, time.Time{}, m.now.Add(2*staleness)
	last := ""
	for range 100 {
		m.refresh(r)
		m.decide(r)
		last = writes(r.pending)
		quiet, wake := last == "", r.pending.WakeAt
		m.applyAll(r)
		switch list := m.group.Status.Protocol.MemberList; {
		case m.t.Failed():
			return
		case quiet && list != nil && list.State == v1.ListSettled && !m.agrees():
			m.electRandomly()
		case quiet && wake.IsZero():
			m.checkConverged()
			return
		case quiet:
			m.now = wake.Add(-r.skew)
		}
	}
	m.t.Errorf("doesn't converge: list %+v, last %q", m.group.Status.Protocol.MemberList, last)
}

// checkConverged checks the final state.
func (m *model) checkConverged() {
	list, status := m.group.Status.Protocol.MemberList, &m.group.Status
	wanted := podNames
	if m.group.Spec.Selector == nil {
		wanted = podsOf(m.group.Spec.Members)
	}
	members := podsOf(list.Members)
	if list.State != v1.ListSettled || !slices.Equal(members, wanted) || !m.agrees() {
		m.t.Errorf("finally: got list %+v with a coordinator %t, want %v", list, m.agrees(), wanted)
		return
	}
	c := status.Coordinator
	if c == nil || m.agentOf(members[0]).report.Coordinator != c.Pod ||
		m.pods[c.Pod].Labels[v1.RoleLabel("ledger")] != v1.RoleCoordinator {
		m.t.Errorf("finally: got coordinator %+v, which lacks the label, or isn't the one that agents report", c)
	}
	for _, name := range podNames {
		a := m.agentOf(name)
		if inList := slices.Contains(members, name); inList != (a.report != nil) ||
			inList && string(list.Identities[name]) != a.identity {
			m.t.Errorf("finally: got %s with report %+v and identity %s, list %+v", name, a.report, a.identity, list)
		}
		if held := len(m.pods[name].Finalizers) > 0; held != m.strict() {
			m.t.Errorf("finally: got %s held: %t", name, held)
		}
	}
}
