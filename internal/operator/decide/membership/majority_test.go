package membership

import (
	"strings"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
)

// newMajorityFacts returns the facts of a group whose present members have a majority, and
// whose first list has settled. Of these and other pods, some are connected.
func newMajorityFacts(members, connected string) *planner {
	f := newDeclaredFacts(members).addPods(strings.Fields(connected)...)
	f.step()
	f.MajorityLost = false
	return f
}

// TestListWaitsForMajority tests when a list that would have no majority waits.
func TestListWaitsForMajority(t *testing.T) {
	const three, six = "a 1, b 2, c 3", "a 1, b 2, c 3, d 4, e 5, f 6"
	cases := golden.Open(t, "testdata/majority.txt")
	for name, c := range map[string]struct {
		present, wanted, connected string
		change                     func(*planner)
	}{
		"three pods that don't run":               {three, six, "a b c", nil},
		"one of them is connected":                {three, six, "a b c d", nil},
		"one member becomes two":                  {"a 1", "a 1, b 2", "a", nil},
		"all are replaced":                        {three, "x 1, y 2, z 3, w 4", "a b c", nil},
		"one pod that doesn't run":                {three, "a 1, b 2, c 3, d 4", "a b c", nil},
		"a majority of those that remain is down": {"a 1, b 2, c 3, d 4, e 5", three, "a d e", nil},
		"a minority of those that remain is down": {"a 1, b 2, c 3, d 4, e 5", three, "a b d", nil},
		"an agent that isn't connected": {
			three, six, "a b c d", func(f *planner) { f.disconnect("d") },
		},
		"the present members aren't connected for a short time": {three, six, "", nil},
		"the present members have lost their majority": {
			three, six, "a", func(f *planner) { f.MajorityLost = true },
		},
		"Strict":                    {three, six, "a b c", func(f *planner) { f.Group.Spec.Safety.Mode = v1.Strict }},
		"Available":                 {three, six, "a b c", func(f *planner) { f.Group.Spec.Safety.Mode = v1.Available }},
		"other priorities":          {three, "a 3, b 2, c 1", "", nil},
		"another order":             {three, "c 3, a 1, b 2", "", nil},
		"another longest lease":     {three, three, "", func(f *planner) { f.Group.Spec.Safety.LeaseMillis = 3000 }},
		"others that are connected": {three, "x 1, y 2", "x y", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newMajorityFacts(c.present, c.connected)
			f.Group.Spec.Members = parseMembers(c.wanted)
			if c.change != nil {
				c.change(f)
			}
			p := f.plan()
			cases.Compare(t, name, formatList(p.List)+"\n"+formatProblem(p.Problem))
		})
	}
}

// TestNextListWaitsForRemovedCoordinator: c has been removed while it leads, and its application stops. Another list
// would leave it in neither of two lists, and end its tenure.
func TestNextListWaitsForRemovedCoordinator(t *testing.T) {
	const settled, next = "v1 Settled: a 1, b 2", "v2 Adopting: a 1, b 2, d 4; after v1: a 1, b 2"
	for name, c := range map[string]struct {
		change func(*planner)
		want   string
	}{
		"it hasn't handed over": {func(*planner) {}, settled},
		"Available":             {func(f *planner) { f.Group.Spec.Safety.Mode = v1.Available }, settled},
		"its priority is 0": {
			func(f *planner) { f.Group.Status.Protocol.MemberList.Members = parseMembers("a 1, c 0") }, "v1 Settled: a 1, c 0",
		},
		"b has succeeded it":        {func(f *planner) { f.Group.Status.Coordinator.Pod = "b" }, next},
		"there is no coordinator":   {func(f *planner) { f.Group.Status.Coordinator = nil }, next},
		"its agent isn't connected": {func(f *planner) { f.disconnect("c") }, next},
		"no majority is connected":  {func(f *planner) { f.MajorityLost = true }, next},
	} {
		t.Run(name, func(t *testing.T) {
			f := newMajorityFacts("a 1, b 2", "a b c d")
			f.Group.Status.Coordinator = &v1.Coordinator{Pod: "c"}
			f.Group.Spec.Members = parseMembers("a 1, b 2, d 4")
			c.change(f)
			expect.Equalf(t, formatList(f.plan().List), c.want, "list")
		})
	}
}

// TestFirstListDoesNotWaitForMajority: without a list, there is no coordinator to lose.
func TestFirstListDoesNotWaitForMajority(t *testing.T) {
	f := newDeclaredFacts("a 1, b 2, c 3")
	f.MajorityLost = false
	p := f.step()
	expect.Equalf(t, formatList(p.List), "v1 Settled: a 1, b 2, c 3", "list")
	expect.Equalf(t, formatProblem(p.Problem), "", "problem")
}

// TestOtherSettingsDoNotWaitForMajority: only the list waits, with the lease that belongs to it.
func TestOtherSettingsDoNotWaitForMajority(t *testing.T) {
	f := newMajorityFacts("a 1, b 2, c 3", "a b c")
	f.Group.Spec.Members = parseMembers("a 1, b 2, c 3, d 4, e 5, f 6")
	f.Group.Spec.Safety.LeaseMillis, f.Group.Spec.Timing.DrainMillis = 3000, new(int32(7000))
	p := f.step()
	if g := p.Document.Group; p.Problem == nil || g.Version != 1 || g.Safety.LongestLeaseMillis != 2000 ||
		*g.Timing.DrainMillis != 7000 {
		t.Errorf("got %+v, want version 1 with its lease and the other settings of the spec", g)
	}
	f.addPod("d")
	if g := f.step().Document.Group; g.Version != 2 || g.Safety.LeaseMillis != 3000 {
		t.Errorf("got %+v, want version 2 with the lease of the spec", g)
	}
}

// TestSelectorGroupWaitsForMajority: a selector group waits if pods that are connected no
// longer match, and those that remain are down. A pod that was deleted isn't retained by that:
// whoever is connected of the present members is one of those that remain.
func TestSelectorGroupWaitsForMajority(t *testing.T) {
	f := newSelectorFacts(v1.PriorityFrom{Ordinal: v1.HighestFirst})
	f.addPods("a-0", "a-1", "a-2", "a-3", "a-4").settle()
	f.MajorityLost = false
	f.disconnect("a-0", "a-1")
	delete(f.findPod("a-3").Labels, "app")
	delete(f.findPod("a-4").Labels, "app")
	const present = "v1 Settled: a-0 1, a-1 2, a-2 3, a-3 4, a-4 5"
	p := f.plan()
	expect.Equalf(t, formatProblem(p.Problem),
		"WaitingForMembers: 1 of 3 wanted members is connected, and a coordinator needs 2, "+
			"so the present list remains: make sure that a-0 and a-1 run, or delete what doesn't", "labels")
	expect.Equalf(t, formatList(p.List), present, "labels")
	f.lose("a-0")
	expect.Equalf(t, formatProblem(f.plan().Problem),
		"WaitingForMembers: 1 of 2 wanted members is connected, and a coordinator needs 2, "+
			"so the present list remains: make sure that a-1 runs, or delete what doesn't", "a-0 is deleted")
	f.lose("a-1")
	expect.Equalf(t, formatList(f.plan().List),
		"v2 Adopting: a-2 3; after v1: a-0 1, a-1 2, a-2 3, a-3 4, a-4 5", "a-1 is deleted")
}
