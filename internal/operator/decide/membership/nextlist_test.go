package membership

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestNoDepartureBeforeTheListIsPublished tests that members do not depart before a document
// of the list is published: a pod that starts until then begins with the previous list.
func TestNoDepartureBeforeTheListIsPublished(t *testing.T) {
	f := newDeclaredFacts("a 10, b 20, c 30")
	f.step()
	f.Group.Spec.Members = parseMembers("x 1")
	f.step()
	after := f.Published
	f.Missing["a"], f.Missing["b"] = true, true
	f.Published = nil
	expect.Equalf(t, formatList(f.plan().List), "v2 Adopting: x 1; after v1: a 10, b 20, c 30", "not published")
	f.Published = after
	expect.Equalf(t, formatList(f.plan().List),
		"v2 Settled: x 1; after v1: a 10, b 20, c 30; departed: a, b", "published")
}

// TestLeaseChangesWithList: agents get another lease with the next version of the list. That
// begins when the list before has settled, and the longer lease of both counts.
func TestLeaseChangesWithList(t *testing.T) {
	for name, c := range map[string]struct {
		from, to         int32
		wantWait         time.Duration
		heartbeat        int32
		pendingHeartbeat int32
	}{
		"longer":                        {500, 4000, 4500 * time.Millisecond, 100, 100},
		"shorter":                       {4000, 500, 4500 * time.Millisecond, 100, 100},
		"longer, with rarer heartbeats": {500, 4000, 4500 * time.Millisecond, 1100, 999},
		"shorter, with more heartbeats": {4000, 500, 4500 * time.Millisecond, 50, 50},
	} {
		t.Run(name, func(t *testing.T) {
			f := newDeclaredFacts("a 10, b 20")
			f.Group.Spec.Safety.LeaseMillis = c.from
			f.settle()
			before := f.Group.Status.Protocol.MemberList.DeepCopy()
			f.Group.Spec.Members = parseMembers("a 10, b 20, c 30")
			f.Group.Status.Protocol.MemberList = f.plan().List // It is being adopted.
			f.Published = new(f.plan().Published)
			f.Group.Spec.Safety.LeaseMillis, f.Group.Spec.Timing.HeartbeatMillis = c.to, c.heartbeat

			p := f.plan()
			if got, want := p.Document.Group.Safety.LongestLeaseMillis, before.LeaseMillis; got != want || p.List.Version != 2 {
				t.Errorf("while version 2 is being adopted: got a lease of %d, want %d", got, want)
			}
			expect.Equalf(t, p.Document.Group.Timing.HeartbeatMillis, c.pendingHeartbeat,
				"while version 2 is being adopted: heartbeat")
			f.settle()
			if got := f.Group.Status.Protocol.MemberList; got.Version != 3 ||
				got.LeaseMillis != control.LongestLeaseMillis(c.to) || got.Previous.LeaseMillis != before.LeaseMillis {
				t.Fatalf("got %+v, want version 3 with a lease of %d after %d", got,
					control.LongestLeaseMillis(c.to), before.LeaseMillis)
			}
			expect.Equalf(t, AdoptionWait(f.Group), c.wantWait, "wait")
			d := f.plan().Document
			if d.Group.Safety.LeaseMillis != c.to || d.Group.Timing.HeartbeatMillis != c.heartbeat {
				t.Errorf("got %+v, want the lease and the heartbeat of the spec", d.Group)
			}
			if next := f.plan().List; !equality.Semantic.DeepEqual(next, f.Group.Status.Protocol.MemberList) {
				t.Errorf("without a change: got %+v, want %+v", next, f.Group.Status.Protocol.MemberList)
			}
		})
	}
}

func TestMissingPodGrace(t *testing.T) {
	for _, c := range []struct {
		mode  v1.SafetyMode
		lease int32
		state v1.ListState
		name  string
		want  time.Duration
	}{
		{v1.Available, 0, v1.ListSettled, "a StatefulSet recreates a pod", time.Second},
		{v1.Majority, 500, v1.ListSettled, "a short lease", time.Second},
		{v1.Majority, 8000, v1.ListSettled, "the grants of the member have expired", 9 * time.Second},
		{v1.Majority, 160, v1.ListAdopting, "a list is being adopted", 180 * time.Millisecond},
		{v1.Available, 0, v1.ListAdopting, "a list is being adopted in Available mode", 0},
	} {
		f := newDeclaredFacts("a 1")
		f.Group.Spec.Safety = v1.Safety{Mode: c.mode, LeaseMillis: c.lease}
		f.Group.Status.Protocol.MemberList = &v1.MemberList{Version: 1, State: c.state, LeaseMillis: c.lease}
		expect.Equalf(t, MissingPodGrace(f.Group), c.want, "%s", c.name)
	}
}

// TestBeginsAfterEarlierGroup tests that a group waits until all agents have left an earlier
// group of the same name: otherwise both could have a coordinator.
func TestBeginsAfterEarlierGroup(t *testing.T) {
	for mode, want := range map[v1.SafetyMode]string{
		v1.Majority: "EarlierGroup: The agent of a has not left an earlier group of this name yet: this " +
			"group begins after that; " +
			"if the problem persists, delete the pod",
		v1.Strict: "EarlierGroup: The agent of a has not left an earlier group of this name yet: this " +
			"group begins after that; " +
			"if the problem persists, delete the pod",
		v1.Available: "",
	} {
		f := newDeclaredFacts("x 10, y 20").addPods("x", "y")
		f.Group.Spec.Safety.Mode = mode
		f.Agents["a"] = facts.Agent{Connected: true, Report: &control.Report{UID: "earlier"}}
		p := f.step()
		expect.Equalf(t, formatProblem(p.Problem), want, "%s", string(mode))
		expect.Equalf(t, p.List != nil, mode == v1.Available, "%s: a list begins", mode)
		hasAgent(f.addPod("a"))
		f.Agents["a"] = facts.Agent{}
		p = f.step()
		expect.Equalf(t, formatProblem(p.Problem), "", "%s, an agent hasn't been contacted", string(mode))
		expect.Equalf(t, p.Document != nil, mode == v1.Available, "%s: a document before each agent was contacted", mode)
		f.deletePod("a")
		f.step()
		f.Agents["a"] = facts.Agent{Connected: true, Report: &control.Report{UID: "earlier"}}
		f.reportVersion("x", 1) // It does not block a group that has begun.
		f.Group.Spec.Members = parseMembers("x 10, y 30")
		expect.Equalf(t, formatProblem(f.step().Problem), "", "%s", string(mode))
	}
	restored := newDeclaredFacts("x 10").addPods("x") // A backup has the list, too.
	restored.step()
	restored.Agents["x"] = facts.Agent{Connected: true, Report: &control.Report{UID: "earlier"}}
	expect.Equalf(t, restored.step().Document == nil, true, "a restored group publishes nothing")
}

// TestAgentsAreAheadOfTheStatus tests agents that use a newer list than the status: the
// next list is unknown, and so are the pods that are not members.
func TestAgentsAreAheadOfTheStatus(t *testing.T) {
	const one, many = "StatusBehind: a uses a newer member list than the status, which may have been " +
		"restored from a backup: " +
		"the list cannot change; delete the group, and create it again",
		"StatusBehind: a and b use a newer member list than the status, which may have been restored from a backup: " +
			"the list cannot change; delete the group, and create it again"
	f := newDeclaredFacts("a 10, b 20, c 30")
	f.settle()
	f.Group.Spec.Members = parseMembers("a 10, b 20")
	f.reportVersion("a", 2)
	f.reportVersion("b", 1)
	p := f.plan()
	expect.Equalf(t, formatProblem(p.Problem), one, "one")
	expect.Equalf(t, formatList(p.List), "v1 Settled: a 10, b 20, c 30", "the list remains")
	if p.Document != nil || !p.StatusBehind {
		t.Errorf("got document %+v, want none", p.Document)
	}
	f.addPods("a", "b", "c")
	f.reportVersion("a", 2)
	f.reportVersion("b", 1)
	expect.Equalf(t, formatProblem(f.plan().Problem), one, "one of three is connected and contradicts")
	f.reportVersion("c", 1)
	expect.Equalf(t, formatProblem(f.plan().Problem), "", "two of three contradict")
	f.disconnect("c")
	expect.Equalf(t, formatProblem(f.plan().Problem), one, "an old report of a disconnected agent is no contradiction")
	f.reportVersion("b", 3)
	expect.Equalf(t, formatProblem(f.plan().Problem), many, "two")

	f.reportVersion("a", 1)
	for _, pod := range []string{"b", "c"} {
		f.changeAgent(pod, func(a *facts.Agent) { a.Report = nil })
	}
	f.step() // It binds the identities.
	expect.Equalf(t, formatList(f.step().List), "v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30",
		"all agents use known lists")
	f.reportVersion("a", 3)
	f.Adopted["b"], f.Adopted["c"] = true, true
	expect.Equalf(t, formatList(f.step().List), "v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30",
		"a list that is being adopted remains")
	f.Published, f.Group.Status.Protocol.MemberList = nil, nil
	expect.Equalf(t, formatList(f.plan().List), "v1 Settled: a 10, b 20",
		"a minority reports a list of a group without one")
	f.reportVersion("b", 3)
	expect.Equalf(t, formatList(f.step().List), "none", "a majority reports a list of a group without one")
}
