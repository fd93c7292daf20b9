package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// leaseInTests is the lease of the groups that are restarted. Without a hand-over, there is no coordinator for about as
// long: what the members granted to the former one must end first.
const leaseInTests = 3 * time.Second

// testRollout restarts the StatefulSet of five pods.
func testRollout(e env) {
	e.awaitCoordinator(highest)
	e.awaitAllMembers()
	start := time.Now()
	e.restart(samplesNamespace, "ledger", 5)
	e.awaitCoordinator(highest)
	e.awaitAllMembers()
	e.requirePlannedEnds(e.group("ledger"), start)
}

// testSmallGroups restarts groups of one and of two pods. Nobody may wait for the end of a lease: as agents record it,
// each time without a coordinator is shorter. For the StatefulSet of one, it counts from the start of its agent, which
// the kubelet rounds down to a second.
func testSmallGroups(e env) {
	const namespace = "conclave-small"
	e.kubectl("create", "namespace", namespace)
	e.t.Cleanup(func() { e.kubectl("delete", "namespace", namespace, "--wait=false") })
	await := func(arguments ...string) {
		e.kubectl(append(arguments, "--namespace", namespace, "--timeout", "5m", "--request-timeout", "0")...)
	}
	e.kubectl("apply", "--namespace", namespace, "-f", "testdata/small.yaml")
	await("wait", "electiongroup", "--all", "--for=condition=Ready")
	observers, start := map[string]*observer{}, time.Now()
	sizes := map[string]int{"statefulset/alone": 1, "deployment/surge": 1, "deployment/pair": 2}
	for workload := range sizes {
		observers[workload] = observeBy(e.t, e.name, filepath.Base(workload), "")
		e.kubectl("rollout", "restart", workload, "--namespace", namespace)
	}
	for workload, observer := range observers {
		await("rollout", "status", workload)
		var g electionGroup
		e.waitUntil(defaultTimeout, workload+" doesn't need the former pods any more", func() bool {
			g = e.groupIn(namespace, observer.group)
			list := g.Status.Protocol.MemberList
			return g.Status.History[0].From.After(start) && len(list.Members) == sizes[workload] && list.State == v1.ListSettled
		})
		tenure, limit := g.Status.History[0], leaseInTests/2
		gap, known := tenure.Gap()
		if workload == "statefulset/alone" {
			var pod corev1.Pod
			e.get(namespace, tenure.Pod, &pod)
			gap = tenure.From.Sub(pod.Status.InitContainerStatuses[0].State.Running.StartedAt.Time)
			limit = leaseInTests
		} else {
			e.requirePlannedEnds(g, start)
		}
		e.t.Logf("%s led after %s", tenure.Pod, gap)
		expect.Equalf(e.t, known && gap < limit, true, "%s without a coordinator are less than %s", gap, limit)
		expect.Equal(e.t, findContradiction(observer.leadingSince(start)), "")
	}
}

// restart restarts the pods of a StatefulSet of the name of its group by kubectl rollout restart, as docs/operate.md
// describes it. At each instant, the agents of a majority of the members must be ready, and each coordinator must hand
// over.
func (e env) restart(namespace, group string, members int) {
	e.t.Helper()
	observer := observe(e.t, e.name, group)
	watched := watchReadiness(e.t, observer, members)
	e.waitUntil(defaultTimeout, "all agents are ready", watched.all)
	start := time.Now()
	watched.start()
	e.kubectl("rollout", "restart", "statefulset/"+group, "--namespace", namespace)
	e.kubectl("rollout", "status", "statefulset/"+group, "--namespace", namespace, "--timeout",
		"10m", "--request-timeout", "0")
	e.waitUntil(defaultTimeout, "all agents are ready", watched.all)
	fewest := watched.fewest()
	e.t.Logf("restarted %d pods in %s: at least %d agents were ready", members,
		time.Since(start).Round(time.Second), fewest)
	expect.AtLeastf(e.t, fewest, members/2+1, "group %s: ready agents (of %d)", group, members)
	leading := observer.leadingSince(start)
	vacancy := longestVacancy(leading, start, time.Now())
	e.t.Logf("at most %s without a coordinator; tenures: %v", vacancy.Round(time.Millisecond), describeTenures(leading))
	expect.AtMostf(e.t, vacancy, leaseInTests-1, "group %s: time without a coordinator", group)
	expect.Equal(e.t, findContradiction(leading), "")
	expect.Equal(e.t, findLeaseViolation(leading), "")
}

// requirePlannedEnds requires that each tenure that has ended since a time ended by a hand-over.
func (e env) requirePlannedEnds(g electionGroup, start time.Time) {
	e.t.Helper()
	planned := []v1.EndReason{v1.EndStepDown, v1.EndPreempted, v1.EndPodDeleted, v1.EndAgentStopped, v1.EndHandOver}
	for _, tenure := range g.Status.History {
		if tenure.Until != nil && tenure.Until.After(start) && !slices.Contains(planned, tenure.EndReason) {
			e.t.Errorf("the tenure of %s ended by %q, want one of %q", tenure.Pod, tenure.EndReason, planned)
		}
	}
}

// longestVacancy returns the longest time without a response of a coordinator.
func longestVacancy(leading []response, start, end time.Time) (longest time.Duration) {
	answered := start
	for _, r := range slices.SortedFunc(slices.Values(leading),
		func(a, b response) int { return a.sent.Compare(b.sent) }) {
		longest = max(longest, r.sent.Sub(answered))
		if r.received.After(answered) {
			answered = r.received
		}
	}
	return max(longest, end.Sub(answered))
}

// readiness follows which agents of a group are ready, as their /readyz says.
type readiness struct {
	members int

	mu    sync.Mutex
	ready map[process]bool
	least int
}

// watchReadiness follows the agents that an observer finds, until the test ends.
func watchReadiness(t *testing.T, o *observer, members int) *readiness {
	t.Helper()
	r := &readiness{members: members, ready: map[process]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		known := map[process]bool{}
		for ctx.Err() == nil {
			for _, agent := range o.processes() {
				if !known[agent] {
					known[agent] = true
					running.Go(func() { r.poll(ctx, agent) })
				}
			}
			pause(ctx, discoverInterval)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

// poll queries an agent until it ends. An answer that doesn't come in time changes nothing: the machine is busy.
func (r *readiness) poll(ctx context.Context, agent process) {
	defer r.set(agent, false)
	inside, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", agent.PID))
	if err != nil {
		return // The agent has ended.
	}
	defer inside.Close()
	transport := &http.Transport{DialContext: dialer(inside)}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Second}
	for ctx.Err() == nil && unix.Kill(agent.PID, 0) == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:7374/readyz", http.NoBody)
		if err != nil {
			return
		}
		response, err := client.Do(request)
		switch {
		case err == nil:
			response.Body.Close()
			r.set(agent, response.StatusCode == http.StatusOK)
		case !os.IsTimeout(err) && ctx.Err() == nil:
			r.set(agent, false)
		}
		pause(ctx, pollInterval)
	}
}

func (r *readiness) set(agent process, ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ready, agent)
	if ready {
		r.ready[agent] = true
	}
	r.least = min(r.least, len(r.ready))
}

// all reports whether the agents of all members are ready now.
func (r *readiness) all() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ready) == r.members
}

// start begins to count.
func (r *readiness) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.least = len(r.ready)
}

// fewest returns the least number of agents that were ready at the same time since start.
func (r *readiness) fewest() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.least
}

func pause(ctx context.Context, interval time.Duration) {
	select {
	case <-time.After(interval):
	case <-ctx.Done():
	}
}
