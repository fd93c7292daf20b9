package chaos

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// settledGroup is a group of three on two nodes that has settled. Its coordinator is p-2.
func settledGroup() *State {
	s := &State{Members: 3, Preempts: true, Coordinator: "p-2", Term: 7, HasService: true, Endpoints: []string{"10.0.0.2"}}
	for i, name := range []string{"p-0", "p-1", "p-2"} {
		agent := Agent{name, "uid-" + name}
		role := "follower"
		if name == "p-2" {
			role = "coordinator"
		}
		s.Rows = append(s.Rows, Row{Pod: name, Priority: int32(10 * (i + 1)), Up: true, Eligible: true})
		s.Pods = append(s.Pods, PodState{
			Agent: agent, IP: "10.0.0." + name[2:], Node: []string{"a", "a", "b"}[i], Ready: true, Role: role,
			View: &Change{From: agent, Coordinator: "p-2", Leading: name == "p-2", Term: 7},
		})
	}
	return s
}

func TestProblems(t *testing.T) {
	cases := golden.Open(t, "testdata/problems.txt")
	for name, change := range map[string]func(*State){
		"settled":                                func(*State) {},
		"no Service":                             func(s *State) { s.HasService, s.Endpoints = false, nil },
		"no coordinator":                         func(s *State) { s.Coordinator = "" },
		"a member is down":                       func(s *State) { s.Rows[0].Up, s.Rows[0].Reason = false, "Crashed" },
		"a pod is missing":                       func(s *State) { s.Pods = s.Pods[1:] },
		"a row is missing":                       func(s *State) { s.Rows = s.Rows[1:] },
		"a pod is missing, of a witness":         func(s *State) { s.Pods, s.Rows[0].Witness = s.Pods[1:], true },
		"a pod isn't ready":                      func(s *State) { s.Pods[1].Ready = false },
		"a pod is being deleted":                 func(s *State) { s.Pods[1].Terminating = true },
		"a lower one leads":                      func(s *State) { s.Rows[0].Priority = 99 },
		"a lower one, never preempts":            func(s *State) { s.Rows[0].Priority, s.Preempts = 99, false },
		"a lower one, the higher isn't eligible": func(s *State) { s.Rows[0].Priority, s.Rows[0].Eligible = 99, false },
		"one that isn't eligible leads":          func(s *State) { s.Rows[2].Eligible = false },
		"one that is down leads":                 func(s *State) { s.Coordinator, s.Rows[2].Up = "p-9", true },
		"an agent doesn't respond":               func(s *State) { s.Pods[0].View = nil },
		"an agent is gone":                       func(s *State) { s.Pods[0].View.Gone = true },
		"an agent reports another one":           func(s *State) { s.Pods[0].View.Coordinator = "p-1" },
		"an agent reports another term":          func(s *State) { s.Pods[0].View.Term = 8 },
		"two agents lead":                        func(s *State) { s.Pods[0].View.Leading = true },
		"two pods have the label":                func(s *State) { s.Pods[0].Role = "coordinator" },
		"a pod has no label":                     func(s *State) { s.Pods[2].Role = "" },
		"the Service routes elsewhere":           func(s *State) { s.Endpoints = []string{"10.0.0.1"} },
		"the Service routes to two":              func(s *State) { s.Endpoints = []string{"10.0.0.1", "10.0.0.2"} },
	} {
		t.Run(name, func(t *testing.T) {
			s := settledGroup()
			change(s)
			var got []string
			for _, p := range s.Problems() {
				got = append(got, p.String())
			}
			cases.Compare(t, name, strings.Join(got, "\n"))
		})
	}
}

func TestVictims(t *testing.T) {
	for kind, want := range map[string]string{
		Pod: "p-2", ForcePod: "p-2", Freeze: "p-2", Two: "p-2 p-1", All: "p-2 p-0 p-1",
		Rollout: "p-2 p-0 p-1", Node: "p-2", Manager: "",
	} {
		expect.Equalf(t, names(Victims(kind, settledGroup())), want, "%s", kind)
	}
	s := settledGroup()
	s.Pods[0].Node = "b"
	expect.Equalf(t, names(Victims(Drain, s)), "p-2 p-0", "drain (all pods on the coordinator's node)")
	s.Pods[2].Terminating = true
	expect.Equalf(t, names(Victims(Pod, s)), "", "coordinator's pod is being deleted")
}

func names(pods []PodState) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Pod)
	}
	return strings.Join(all, " ")
}

func TestObstacle(t *testing.T) {
	cases := golden.Open(t, "testdata/obstacles.txt")
	for name, c := range map[string]struct {
		kind      string
		change    func(*State)
		available bool
	}{
		"none":                        {Node, func(*State) {}, false},
		"no coordinator":              {Pod, func(s *State) { s.Coordinator = "" }, false},
		"no election, no coordinator": {Manager, func(s *State) { s.Coordinator = "" }, false},
		"no successor": {
			Pod, func(s *State) { s.Rows[0].Eligible, s.Rows[1].Eligible = false, false }, false,
		},
		"all on one node":                     {Cordon, func(s *State) { s.Pods[0].Node, s.Pods[1].Node = "b", "b" }, false},
		"the majority on one node":            {Node, func(s *State) { s.Pods[0].Node = "b" }, false},
		"the majority on one node, available": {Node, func(s *State) { s.Pods[0].Node = "b" }, true},
		"the majority on a drained node":      {Drain, func(s *State) { s.Pods[0].Node = "b" }, false},
	} {
		s := settledGroup()
		c.change(s)
		kind, err := ParseKinds([]string{c.kind})
		must.Succeed(t, err)
		cases.Compare(t, name, Obstacle(kind[0], s, Victims(c.kind, s), c.available))
	}
}

func newResult() *Result {
	r := &Result{Namespace: "bank", Group: "ledger", Algorithm: "StatusTable", Safety: "Majority", Members: 5, Seed: 7}
	for i := range 100 {
		r.Faults = append(r.Faults,
			Fault{Number: i + 1, Kind: ForcePod, Elected: new(float64(100 - i)), Settled: new(8000.0)})
	}
	r.Faults = append(r.Faults, Fault{Kind: Pod, Elected: new(1.5)},
		Fault{Kind: Evict, Refused: "budget"}, Fault{Kind: Manager})
	r.Summary = Summarize(r.Faults)
	return r
}

func TestSummaryHasMedianP99AndMaximumOfEachKind(t *testing.T) {
	var b strings.Builder
	must.Succeed(t, newResult().WriteTable(&b))
	want := `bank/ledger: StatusTable; Majority; 5 members; seed 7

FAULT      COUNT           ELECTED             KNOWN BY ALL  STATUS  SERVICE  SETTLED
pod        1               1.50 / 1.50 / 1.50  -             -       -        -
force-pod  100             50.0 / 99.0 / 100   -             -       -        8000 / 8000 / 8000
evict      0 (+1 refused)  -                   -             -       -        -
manager    1               -                   -             -       -        -
Milliseconds from the fault: median / p99 / maximum.

102 faults: no invariant was violated
`
	expect.Equal(t, b.String(), want)
}

// Without faults of its own, the command shows changes of the leader, and no columns for what it can't know.
func TestObservedChangesAreReported(t *testing.T) {
	r := &Result{
		Namespace: "web", Leader: "lease/web", Candidates: "app=web", Evidence: "A Lease.",
		Members: 3, ObservedMillis: 600_000,
	}
	r.Faults = []Fault{{Number: 1, Kind: changeOfLeader, Elected: new(16500.0), TwoLeaders: new(20.0)}, {
		Number: 2, Kind: changeOfLeader, Elected: new(2000.0),
	}}
	r.Summary = Summarize(r.Faults)
	r.Violations = []Violation{{Problem: Problem{OneLeader, "two of them"}}}
	var b strings.Builder
	must.Succeed(t, r.WriteTable(&b))
	want := `web, lease/web: 3 candidates with app=web

FAULT   COUNT  ELECTED               TWO LEADERS
change  2      2000 / 16500 / 16500  1 of 2, 20.0 ms or longer
ELECTED: milliseconds from the last sign of a leader to the next one: median / p99 / maximum.
A Lease.

2 changes of the leader in 10m0s: 1 violation of invariants
- one leader: two of them
`
	expect.Equal(t, b.String(), want)
}

func TestReportsNameViolations(t *testing.T) {
	r := newResult()
	r.Violations = []Violation{{Fault: 3, Kind: ForcePod, Problem: Problem{OneCoordinator, "two of them"}}}
	r.Interrupted, r.NotPossible = true, map[string]string{Freeze: "no permission"}
	var table, markdown strings.Builder
	must.Succeed(t, r.WriteTable(&table))
	must.Succeed(t, r.WriteMarkdown(&markdown))
	for _, want := range []string{
		"102 faults: 1 violation of invariants before the run was interrupted",
		"- fault 3 (force-pod): one coordinator: two of them\n",
	} {
		if !strings.Contains(table.String(), want) || !strings.Contains(markdown.String(), want) {
			t.Errorf("got\n%s\n%s\nwant both to contain %q", &table, &markdown, want)
		}
	}
	for _, want := range []string{
		"| force-pod | 100 | 50.0 / 99.0 / 100 | - |", "- `freeze` was not possible: no permission\n",
	} {
		expect.Containsf(t, markdown.String(), want, "report")
	}
}
