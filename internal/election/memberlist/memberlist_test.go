package memberlist_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// members returns the members in text, such as "abc", with priorities from 1.
func members(text string) []memberlist.Member {
	var all []memberlist.Member
	for i, name := range strings.Split(text, "") {
		all = append(all, memberlist.Member{Name: name, Priority: uint32(i + 1)})
	}
	return all
}

func format(l *memberlist.List) string {
	if l == nil {
		return "none"
	}
	names := func(all []memberlist.Member) (text string) {
		for _, m := range all {
			text += m.Name + m.Identity
		}
		return text
	}
	text := fmt.Sprintf("v%d %s", l.Version, names(l.Members))
	if l.Previous != nil {
		text += fmt.Sprintf(" after v%d %s", l.Previous.Version, names(l.Previous.Members))
	}
	if len(l.Departed) > 0 {
		text += " without " + strings.Join(l.Departed, "")
	}
	if l.Settled {
		text += " settled"
	}
	return text
}

// group is what the steps of a test change. The letters of adopted and missing are members.
type group struct {
	memberlist.Facts
	adopted, missing string
	identities       map[string]string
}

func newGroup() *group {
	g := &group{identities: map[string]string{}}
	g.Facts = memberlist.Facts{
		Identity: func(name string) string { return g.identities[name] },
		Adopted:  func(name string) bool { return strings.Contains(g.adopted, name) },
		Missing:  func(name string) bool { return strings.Contains(g.missing, name) },
	}
	return g
}

// step is a change of the facts, and the list that follows.
type step struct {
	name   string
	change func()
	want   string
}

// check takes the steps of a history. Each begins with the list of the one before.
func (g *group) check(t *testing.T, steps []step) {
	t.Helper()
	var list *memberlist.List
	for _, s := range steps {
		s.change()
		before := format(list)
		next := g.Next(list)
		expect.Equalf(t, format(next), s.want, "%s", s.name)
		expect.Equalf(t, format(list), before, "%s: the list before", s.name)
		expect.Equalf(t, format(next) == before, next == list, "%s: the list is the same exactly if nothing changed", s.name)
		list = next
	}
}

// TestSteps is the history of one group.
func TestSteps(t *testing.T) {
	g := newGroup()
	g.check(t, []step{
		{"no members are wanted", func() {}, "none"},
		{"the first list is settled", func() { g.Wanted = members("abc") }, "v1 abc settled"},
		{"the members are the wanted ones", func() { g.Published = true }, "v1 abc settled"},
		{"the coordinator that it has removed stops", func() {
			g.Wanted, g.Draining = members("cd"), true
		}, "v1 abc settled"},
		{"others are wanted", func() { g.Draining = false }, "v2 cd after v1 abc"},
		{"the list isn't published", func() {
			g.Published, g.missing, g.adopted = false, "ab", "abc"
		}, "v2 cd after v1 abc"},
		{"one of three has departed", func() {
			g.Published, g.missing, g.adopted = true, "a", ""
		}, "v2 cd after v1 abc without a"},
		{"it is back", func() { g.missing, g.Wanted = "", members("x") }, "v2 cd after v1 abc without a"},
		{"it counts once, and new members don't count", func() { g.adopted = "ad" }, "v2 cd after v1 abc without a"},
		{"another one has adopted the list", func() { g.adopted = "b" }, "v2 cd after v1 abc without a settled"},
		{"the next change", func() {}, "v3 x after v2 cd"},
		{"one of two is no majority", func() { g.adopted = "c" }, "v3 x after v2 cd"},
		{"both have departed", func() { g.adopted, g.missing = "", "cd" }, "v3 x after v2 cd without cd settled"},
		{"the list must not change", func() { g.Wanted = nil }, "v3 x after v2 cd without cd settled"},
	})
}

// TestIdentities: a member without an identity gets one within the version, and only once. Another identity is the next
// list, which takes in all processes that wait.
func TestIdentities(t *testing.T) {
	g := newGroup()
	g.Published = true
	connect := func(identities ...string) {
		for _, identity := range identities {
			g.identities[identity[:1]] = identity[1:]
		}
	}
	g.check(t, []step{
		{"one is connected", func() { g.Wanted = members("abc"); connect("a1") }, "v1 a1bc settled"},
		{"two more", func() { connect("b1", "c1") }, "v1 a1b1c1 settled"},
		{"nothing changes", func() {}, "v1 a1b1c1 settled"},
		{"one isn't connected", func() { connect("b") }, "v1 a1b1c1 settled"},
		{"it is replaced", func() { connect("b2") }, "v2 a1b2c1 after v1 a1b1c1"},
		{"two are replaced meanwhile", func() { connect("a2", "c2") }, "v2 a1b2c1 after v1 a1b1c1"},
		{"the list settles", func() { g.adopted = "ac" }, "v2 a1b2c1 after v1 a1b1c1 settled"},
		{"one list takes in both", func() { g.adopted = "" }, "v3 a2b2c2 after v2 a1b2c1"},
		{"it settles", func() { g.adopted = "abc" }, "v3 a2b2c2 after v2 a1b2c1 settled"},
		{"a member joins", func() { g.Wanted = members("abcd") }, "v4 a2b2c2d after v3 a2b2c2"},
		{"it is connected, while the list is adopted", func() {
			g.adopted = ""
			connect("d1")
		}, "v4 a2b2c2d1 after v3 a2b2c2"},
		{"it settles", func() { g.adopted = "abc" }, "v4 a2b2c2d1 after v3 a2b2c2 settled"},
		{"one more joins", func() { g.Wanted = members("abcde") }, "v5 a2b2c2d1e after v4 a2b2c2d1"},
		{"the list settles, and it is connected", func() { connect("e1") }, "v5 a2b2c2d1e1 after v4 a2b2c2d1 settled"},
		{"one is replaced while the list must not change", func() {
			g.Wanted = nil
			connect("a3")
		}, "v6 a3b2c2d1e1 after v5 a2b2c2d1e1"},
	})
}

// TestBindingIsItsOwnStep: a list that is bound is the previous one of the next list, as it was published.
func TestBindingIsItsOwnStep(t *testing.T) {
	g := newGroup()
	g.check(t, []step{
		{"nobody is connected", func() { g.Wanted, g.Published = members("ab"), true }, "v1 ab settled"},
		{"both are, and others are wanted", func() {
			g.identities["a"], g.identities["b"] = "1", "1"
			g.Wanted = members("bc")
		}, "v1 a1b1 settled"},
		{"the next list", func() {}, "v2 b1c after v1 a1b1"},
	})
}

// TestVersions tests that a version follows the clock and the reported terms, but not what can't be true.
func TestVersions(t *testing.T) {
	const limit = 1 << 29
	term := func(version, counter int64) int64 { return version<<16 | counter }
	for name, c := range map[string]struct {
		present       uint32
		seconds, term int64
		want          uint32
	}{
		"the clock":                              {7, 1000, 0, 1000},
		"a clock that is behind":                 {1000, 7, 0, 1001},
		"a clock before 2026":                    {7, -1000, 0, 8},
		"a clock that is ahead":                  {limit - 1000, limit, 0, limit},
		"a clock that is decades ahead":          {limit - 1000, limit + 1, 0, limit - 999},
		"a clock two years ahead of the list":    {7, 1<<26 + 7, 0, 1<<26 + 7},
		"a clock further ahead of the list":      {7, 1<<26 + 8, 0, 8},
		"a term of the present list":             {7, 0, term(7, 5), 8},
		"a term of a list that isn't known":      {7, 10, term(20, 5), 21},
		"a term that no list can have":           {7, 10, term(1<<30-1, 5), 10},
		"after a list at the limit of the clock": {limit, 1000, 0, limit + 1},
		"the clock of the first list":            {0, limit, 0, limit},
	} {
		g := newGroup()
		g.Wanted, g.Seconds, g.Term = members("x"), c.seconds, c.term
		list := &memberlist.List{Version: c.present, Members: members("a"), Settled: true}
		expect.Equalf(t, g.Next(list).Version, c.want, "%s", name)
	}
}

// TestCountersRunOut tests that the next list, of the same members, begins before the terms of a list are used up.
func TestCountersRunOut(t *testing.T) {
	for counter, want := range map[int64]uint32{1 << 15: 7, 1<<15 + 1: 8, 1<<16 - 1: 8} {
		g := newGroup()
		g.Wanted, g.Term = members("ab"), 7<<16|counter
		list := &memberlist.List{Version: 7, Members: members("ab"), Settled: true}
		expect.Equalf(t, g.Next(list).Version, want, "after %d terms", counter)
		g.Term = 6<<16 | counter
		expect.Equalf(t, g.Next(list).Version, 7, "after %d terms of the list before", counter)
		g.Term = 9<<16 | counter
		expect.Equalf(t, g.Next(list).Version, 10, "after %d terms of a list that doesn't exist", counter)
		g.Term = (7+1<<26)<<16 | counter
		expect.Equalf(t, g.Next(list).Version, 8, "after %d terms of the newest list that may exist", counter)
		g.Term = (8+1<<26)<<16 | counter
		expect.Equalf(t, g.Next(list).Version, 7, "after %d terms of a list that can't exist", counter)
	}
}

// TestNotNeeded tests that no vote of the previous list is needed when a list has settled.
func TestNotNeeded(t *testing.T) {
	list := memberlist.List{
		Version: 2, Members: members("d"), Departed: []string{"b"},
		Previous: &memberlist.List{Version: 1, Members: members("abc")},
	}
	expect.DeepEqualf(t, list.NotNeeded(), []string{"b"}, "while the list is adopted (the departed members)")
	list.Settled = true
	expect.DeepEqualf(t, list.NotNeeded(), []string{"a", "b", "c"}, "when it has settled (all previous members)")
	first := memberlist.List{Version: 1, Members: members("d"), Settled: true}
	expect.Equalf(t, first.NotNeeded() == nil, true, "the first list has none, as in a document that was read")
	expect.Equalf(t, first.Concerns("a"), false, "the first list concerns a")
}

// TestAdoptionWait tests that the wait exceeds the lease on a clock that is a sixteenth slow.
func TestAdoptionWait(t *testing.T) {
	if got, least := memberlist.AdoptionWait(1600*time.Millisecond), 1700*time.Millisecond; got < least {
		t.Errorf("got %v, want at least %v", got, least)
	}
}

// TestLeaseBeginsVersion: another lease needs another version, once the list has settled.
func TestLeaseBeginsVersion(t *testing.T) {
	f := newGroup()
	f.Wanted, f.LeaseMillis, f.Published, f.adopted = members("ab"), 500, true, "ab"
	list := f.Next(nil)
	f.LeaseMillis = 900
	next := f.Next(list)
	if next.Version != 2 || next.LeaseMillis != 900 || next.Settled ||
		next.Previous.LeaseMillis != 500 || next.LongestLease() != 900 {
		t.Fatalf("got %+v, want version 2 with a lease of 900 after 500", next)
	}
	f.LeaseMillis = 100
	if settled := f.Next(next); settled.Version != 2 || settled.LeaseMillis != 900 || !settled.Settled {
		t.Errorf("got %+v, want version 2 to settle with its lease", settled)
	}
	third := f.Next(f.Next(next))
	if third.Version != 3 || third.LeaseMillis != 100 || third.LongestLease() != 900 {
		t.Errorf("got %+v, want version 3 with a lease of 100 after 900", third)
	}
	f.Wanted = nil
	f.LeaseMillis = 300
	expect.Equalf(t, f.Next(third).LeaseMillis, 100, "lease while the list must not change")
}

func TestIdentity(t *testing.T) {
	for _, identity := range []uint64{0, 1, 0xa0b1c2d3e4f56789, 1<<64 - 1} {
		got, err := memberlist.ParseIdentity(memberlist.FormatIdentity(identity))
		expect.Succeed(t, err)
		expect.Equal(t, got, identity)
	}
	for _, text := range []string{
		"0000000000000000", "1", "A0B1C2D3E4F56789", "+000000000000001", "0x00000000000001", "g", "fffffffffffffffff",
	} {
		_, err := memberlist.ParseIdentity(text)
		expect.ErrorContainsf(t, err, "must have 16 hexadecimal digits", "%s", text)
	}
}
