package membership

import (
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// TestVersions is one group's story: each step begins where the one before ended.
func TestVersions(t *testing.T) {
	f := newDeclaredFacts("a 10, b 20, c 30")
	for _, step := range []struct {
		sentence string
		change   func()
		list     string
	}{
		{"the first list has settled at once", func() {}, "v1 Settled: a 10, b 20, c 30"},
		{"nothing happens", func() {}, "v1 Settled: a 10, b 20, c 30"},
		{"a pod without which it goes on", func() { f.Missing["c"] = true }, "v1 Settled: a 10, b 20, c 30"},
		{
			"c is taken out", func() { f.Group.Spec.Members = parseMembers("a 10, b 20") },
			"v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30",
		},
		{"c has been gone for long: that is the next step", func() {}, "v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30; gone: c"},
		{
			"another edit has to wait", func() { f.Group.Spec.Members = parseMembers("b 20, d 5") },
			"v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30; gone: c",
		},
		{
			"who isn't in the list before has no say", func() { f.Adopted["d"], f.Missing["e"] = true, true },
			"v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30; gone: c",
		},
		{
			"one who has departed and adopted counts once", func() { f.Adopted["c"] = true },
			"v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30; gone: c",
		},
		{"a has adopted it", func() { f.Adopted["a"] = true }, "v2 Settled: a 10, b 20; after v1: a 10, b 20, c 30; gone: c"},
		{"now the edit", func() { clear(f.Adopted); clear(f.Missing) }, "v3 Adopting: b 20, d 5; after v2: a 10, b 20"},
		{"one of two isn't a majority", func() { f.Adopted["b"] = true }, "v3 Adopting: b 20, d 5; after v2: a 10, b 20"},
		{"a has departed", func() { f.Missing["a"] = true }, "v3 Settled: b 20, d 5; after v2: a 10, b 20; gone: a"},
		{"a is back, and that is no news", func() { clear(f.Missing) }, "v3 Settled: b 20, d 5; after v2: a 10, b 20; gone: a"},
		{"another one goes, and that is none either", func() { f.Missing["b"] = true }, "v3 Settled: b 20, d 5; after v2: a 10, b 20; gone: a"},
		{"the order alone", func() { clear(f.Missing); f.Group.Spec.Members = parseMembers("d 5, b 20") }, "v4 Adopting: d 5, b 20; after v3: b 20, d 5"},
		{
			"back, before it has settled", func() { f.Group.Spec.Members = parseMembers("b 20, d 5") },
			"v4 Adopting: d 5, b 20; after v3: b 20, d 5",
		},
		{"settled", func() { f.Adopted["d"] = true }, "v4 Settled: d 5, b 20; after v3: b 20, d 5"},
		{"and back", func() {}, "v5 Adopting: b 20, d 5; after v4: d 5, b 20"},
	} {
		step.change()
		expect(t, step.sentence, formatList(f.step().List), step.list)
	}
}

// TestNobodyDepartsBeforeAgentsAreTold: until the ConfigMap has the list, a pod
// that comes begins with the one before.
func TestNobodyDepartsBeforeAgentsAreTold(t *testing.T) {
	f := newDeclaredFacts("a 10, b 20, c 30")
	f.step()
	before := f.Published
	f.Group.Spec.Members = parseMembers("x 1")
	f.step()
	after := f.Published
	f.Missing["a"], f.Missing["b"] = true, true
	for _, published := range []*control.Document{nil, before} {
		f.Published = published
		expect(t, "not told", formatList(MakePlan(*f).List), "v2 Adopting: x 1; after v1: a 10, b 20, c 30")
	}
	f.Published = after
	expect(t, "told", formatList(MakePlan(*f).List), "v2 Settled: x 1; after v1: a 10, b 20, c 30; gone: a, b")
}

func TestMajorities(t *testing.T) {
	for _, c := range []struct {
		before, adopted, gone string
		settled               bool
	}{
		{"a 1", "", "", false},
		{"a 1", "a", "", true},
		{"a 1, b 2", "a", "", false},
		{"a 1, b 2", "ab", "", true},
		{"a 1, b 2, c 3", "a", "", false},
		{"a 1, b 2, c 3", "a", "b", true},
		{"a 1, b 2, c 3, d 4", "a", "b", false},
		{"a 1, b 2, c 3, d 4", "a", "bc", true},
		{"a 1, b 2, c 3, d 4, e 5", "", "abc", true},
	} {
		f := newDeclaredFacts(c.before)
		f.step()
		f.Group.Spec.Members = parseMembers("x 1")
		f.step()
		for _, name := range c.adopted {
			f.Adopted[string(name)] = true
		}
		for _, name := range c.gone {
			f.Missing[string(name)] = true
		}
		if p := f.step(); (p.List.State == v1.ListSettled) != c.settled {
			t.Errorf("of %s, %q have adopted and %q departed: %s", c.before, c.adopted, c.gone, p.List.State)
		}
	}
}

func TestFloor(t *testing.T) {
	f := newDeclaredFacts("a 1")
	floors := []int64{}
	next := func() {
		f.Adopted["a"], f.Adopted["b"] = true, true
		f.step()
		f.Group.Spec.Members[0].Priority++
		floors = append(floors, *f.step().List.Floor)
	}
	f.step()
	next()
	f.Now = noon.Add(time.Second)
	next()
	f.Now = noon.Add(-time.Hour) // Another operator's clock is behind.
	next()
	f.Group.Status.Term = floors[2] + 1000
	next()
	first := control.TermAt(noon)
	for i, want := range []int64{first, first + 10, first + 10, first + 1010} {
		if floors[i] != want {
			t.Errorf("floor %d is %d, want %d", i, floors[i], want)
		}
	}
}

// TestReading: the operator's terms are the agents'.
func TestReading(t *testing.T) {
	for _, at := range []time.Time{noon, noon.Add(time.Second), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)} {
		agents := int64(clock.New(at).CurrentTerm())
		if ours := control.TermAt(at); ours > agents || agents > ours+10 {
			t.Errorf("at %v the operator reads %d, and the agents %d", at, ours, agents)
		}
	}
	if control.MaxTerm != int64(election.MaxTerm) {
		t.Errorf("the highest term is %d, and to agents %d", control.MaxTerm, election.MaxTerm)
	}
}

// TestContinuation: the ConfigMap is known, and the status isn't, or is an old one.
func TestContinuation(t *testing.T) {
	old := newDeclaredFacts("a 10, b 20, c 30")
	old.step()
	first := *old.Published
	old.Group.Spec.Members = parseMembers("a 10, b 20")
	old.step()
	old.Missing["c"] = true
	second := *old.step().Document
	for sentence, c := range map[string]struct {
		change func(*Facts)
		list   string
	}{
		"no ConfigMap, so it is the first list": {func(f *Facts) { f.Published = nil }, "v1 Settled: a 10, b 20"},
		"the first list was published":          {func(f *Facts) { f.Published = &first }, "v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30"},
		"the second one was: it may be on its way": {
			func(f *Facts) { f.Published = &second }, "v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30; gone: c",
		},
		"the status is that before": {
			func(f *Facts) {
				f.Published = &second
				f.Group.Status.MemberList = &v1.MemberList{Version: 1, State: v1.ListSettled, Members: parseMembers("a 10, b 20, c 30")}
			}, "v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30; gone: c",
		},
		"the status is that before who has departed": {
			func(f *Facts) {
				f.Published = &second
				f.Group.Status.MemberList = old.Group.Status.MemberList.DeepCopy()
				f.Group.Status.MemberList.Departed = nil
			}, "v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30; gone: c",
		},
		"the ConfigMap is that before": {
			func(f *Facts) {
				f.Published = &first
				f.Group.Status.MemberList = old.Group.Status.MemberList
			}, "v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30; gone: c",
		},
		"the ConfigMap is an earlier group's": {
			func(f *Facts) { f.Published = &second; f.Published.UID = "old" }, "v1 Settled: a 10, b 20",
		},
		"somebody else wrote the ConfigMap": {
			func(f *Facts) {
				f.Published = &control.Document{UID: "6f0c", Group: control.Group{Version: 3, Members: second.Group.Members}}
			},
			"v1 Settled: a 10, b 20",
		},
		"and left nobody in it": {
			func(f *Facts) { f.Published = &control.Document{UID: "6f0c", Group: control.Group{Version: 1}} }, "v1 Settled: a 10, b 20",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			f := newDeclaredFacts("a 10, b 20")
			f.Now = noon.Add(time.Minute)
			c.change(f)
			p := MakePlan(*f)
			expect(t, "list", formatList(p.List), c.list)
			if p.List.Version == 2 && *p.List.Floor < control.TermAt(noon) {
				t.Errorf("the floor is %d", *p.List.Floor)
			}
		})
		second.UID = "6f0c"
	}
}

func TestWait(t *testing.T) {
	f := newDeclaredFacts("a 1")
	if got := AdoptionWait(f.Group); got != 562500*time.Microsecond {
		t.Errorf("by default, it is %v", got)
	}
	f.Group.Spec.Safety = v1.Safety{Mode: v1.Strict, LeaseMillis: 8000}
	if got := AdoptionWait(f.Group); got != 9*time.Second {
		t.Errorf("for a lease of 8 s it is %v", got)
	}
	f.Group.Spec.Safety.Mode = v1.Available
	if got := AdoptionWait(f.Group); got != 0 {
		t.Errorf("without leases it is %v", got)
	}
}

func TestAbsence(t *testing.T) {
	for _, c := range []struct {
		mode     v1.SafetyMode
		lease    int32
		state    v1.ListState
		sentence string
		want     time.Duration
	}{
		{v1.Available, 0, v1.ListSettled, "a StatefulSet replaces its pods one after the other", time.Second},
		{v1.Majority, 500, v1.ListSettled, "a short lease is shorter than that", time.Second},
		{v1.Majority, 8000, v1.ListSettled, "what it granted has run out", 9 * time.Second},
		{v1.Majority, 160, v1.ListAdopting, "others wait for it", 180 * time.Millisecond},
		{v1.Available, 0, v1.ListAdopting, "it has granted nothing", 0},
	} {
		f := newDeclaredFacts("a 1")
		f.Group.Spec.Safety = v1.Safety{Mode: c.mode, LeaseMillis: c.lease}
		f.Group.Status.MemberList = &v1.MemberList{Version: 1, State: c.state}
		if got := MissingPodGrace(f.Group); got != c.want {
			t.Errorf("%s: it is %v, and should be %v", c.sentence, got, c.want)
		}
	}
}

// A group of a name that was another one's before begins when nobody is in that any
// more: two coordinators of one name would be what it must never have.
func TestBeginsAfterTheGroupBefore(t *testing.T) {
	for mode, want := range map[v1.SafetyMode]string{
		v1.Majority: "EarlierGroup: The agent of a has not left an earlier group of this name yet: this group begins after that; " +
			"if the problem persists, delete the pod",
		v1.Strict: "EarlierGroup: The agent of a has not left an earlier group of this name yet: this group begins after that; " +
			"if the problem persists, delete the pod",
		v1.Available: "",
	} {
		f := newDeclaredFacts("x 10, y 20").addPods("x", "y")
		f.Group.Spec.Safety.Mode = mode
		f.InEarlierGroup = []string{"a"}
		p := f.step()
		expect(t, string(mode), formatProblem(p.Problem), want)
		if begins := p.List != nil; begins != (mode == v1.Available) {
			t.Errorf("%s: it begins with %s", mode, formatList(p.List))
		}
		f.InEarlierGroup = nil
		f.step()
		f.InEarlierGroup = []string{"a"} // Whoever comes too late holds nothing up.
		f.Group.Spec.Members = parseMembers("x 10, y 30")
		expect(t, string(mode), formatProblem(f.step().Problem), "")
	}
}

// Agents that go by a list which nobody knows any more: what comes after it can't be
// told, nor who is no member.
func TestAgentsAreAheadOfTheStatus(t *testing.T) {
	const one, many = "StatusBehind: a uses a newer member list than the status, which may have been restored from a backup: " +
		"the list cannot change; delete the group, and create it again",
		"StatusBehind: a and b use a newer member list than the status, which may have been restored from a backup: " +
			"the list cannot change; delete the group, and create it again"
	f := newDeclaredFacts("a 10, b 20, c 30")
	f.settle()
	f.Group.Spec.Members = parseMembers("a 10, b 20")
	f.Versions = map[string]int64{"a": 2, "b": 1}
	p := MakePlan(*f)
	expect(t, "one", formatProblem(p.Problem), one)
	expect(t, "the list stays", formatList(p.List), "v1 Settled: a 10, b 20, c 30")
	if p.Document != nil || p.ConfigMap != nil || !p.StatusBehind {
		t.Errorf("it is published: %+v", p.Document)
	}
	f.Versions["b"] = 3
	expect(t, "two", formatProblem(MakePlan(*f).Problem), many)

	f.Versions = map[string]int64{"a": 1}
	expect(t, "all go by what is known", formatList(f.step().List), "v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30")
	f.Versions["a"], f.Adopted["b"], f.Adopted["c"] = 3, true, true
	expect(t, "a list that is being adopted stays, too", formatList(f.step().List), "v2 Adopting: a 10, b 20; after v1: a 10, b 20, c 30")
	f.Published, f.Group.Status.MemberList = nil, nil
	expect(t, "as does none", formatList(f.step().List), "none")
}
