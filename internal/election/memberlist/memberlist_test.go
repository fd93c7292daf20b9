package memberlist_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// members returns the members in text, such as "abc", with priorities from 1.
func members(text string) []memberlist.Member[string] {
	var all []memberlist.Member[string]
	for i, name := range strings.Split(text, "") {
		all = append(all, memberlist.Member[string]{Name: name, Priority: int64(i + 1)})
	}
	return all
}

func format(l *memberlist.List[string]) string {
	if l == nil {
		return "none"
	}
	names := func(all []memberlist.Member[string]) (text string) {
		for _, m := range all {
			text += m.Name
		}
		return text
	}
	text := fmt.Sprintf("v%d %s", l.Version, names(l.Members))
	if l.Previous != nil {
		text += " after " + names(l.Previous)
	}
	if len(l.Departed) > 0 {
		text += " without " + strings.Join(l.Departed, "")
	}
	if l.Settled {
		text += " settled"
	}
	floor := election.Term(l.Floor)
	if floor > 0 && floor != floor.Epoch().Last() {
		return fmt.Sprintf("%s floor %d", text, floor)
	}
	return fmt.Sprintf("%s floor after epoch %d", text, floor.Epoch())
}

// TestSteps is the history of one group: each step begins with the list of the one before.
func TestSteps(t *testing.T) {
	var adopted, missing string
	var clock election.Epoch
	f := memberlist.Facts[string]{
		NextFloor: func(floor int64) int64 { return int64(election.NextFloor(election.Term(floor), clock)) },
		Adopted:   func(name string) bool { return strings.Contains(adopted, name) },
		Missing:   func(name string) bool { return strings.Contains(missing, name) },
	}
	var list *memberlist.List[string]
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"no members are wanted", func() {}, "none"},
		{"the first list is settled", func() { f.Wanted = members("abc") }, "v1 abc settled floor after epoch 0"},
		{"the members are the wanted ones", func() { f.Published, clock = true, 1000 }, "v1 abc settled floor after epoch 0"},
		{"the coordinator that it has removed stops", func() {
			f.Wanted, f.Draining = members("cd"), true
		}, "v1 abc settled floor after epoch 0"},
		{"others are wanted", func() { f.Draining = false }, "v2 cd after abc floor after epoch 1750"},
		{"the list isn't published", func() {
			f.Published, missing, adopted = false, "ab", "abc"
		}, "v2 cd after abc floor after epoch 1750"},
		{"one of three has departed", func() {
			f.Published, missing, adopted = true, "a", ""
		}, "v2 cd after abc without a floor after epoch 1801"},
		{"it is back", func() { missing, f.Wanted = "", members("x") }, "v2 cd after abc without a floor after epoch 1801"},
		{"it counts once, and new members don't count", func() {
			adopted = "ad"
		}, "v2 cd after abc without a floor after epoch 1801"},
		{"another one has adopted the list", func() {
			adopted, clock = "b", 2000
		}, "v2 cd after abc without a settled floor after epoch 2750"},
		{"a higher term was reported", func() {
			f.Term = int64(election.Epoch(5000).First()) + 3
		}, "v3 x after cd floor 80003"},
		{"one of two is no majority", func() { adopted = "c" }, "v3 x after cd floor 80003"},
		{"both have departed", func() {
			adopted, missing = "", "cd"
		}, "v3 x after cd without cd settled floor after epoch 5001"},
		{"the list must not change", func() { f.Wanted = nil }, "v3 x after cd without cd settled floor after epoch 5001"},
	} {
		step.change()
		before := format(list)
		next := f.Next(list)
		expect.Equalf(t, format(next), step.want, "%s", step.name)
		if after := format(list); after != before {
			t.Errorf("%s: the list before changed from %s to %s", step.name, before, after)
		}
		if (format(next) == before) != (next == list) {
			t.Errorf("%s: got another list exactly if nothing changed", step.name)
		}
		list = next
	}
}

// TestNotNeeded tests that no vote of the previous list is needed when a list has settled.
func TestNotNeeded(t *testing.T) {
	list := memberlist.List[string]{Version: 2, Members: members("d"), Previous: members("abc"), Departed: []string{"b"}}
	expect.DeepEqualf(t, list.NotNeeded(), []string{"b"}, "while the list is adopted (the departed members)")
	list.Settled = true
	expect.DeepEqualf(t, list.NotNeeded(), []string{"a", "b", "c"}, "when it has settled (all previous members)")
	first := memberlist.List[string]{Version: 1, Members: members("d"), Settled: true}
	if got := first.NotNeeded(); got != nil {
		t.Errorf("the first list: got %v, want nil, as in a document that was read", got)
	}
}

// TestAdoptionWait tests that the wait exceeds the lease on a clock that is a sixteenth slow.
func TestAdoptionWait(t *testing.T) {
	if got, least := memberlist.AdoptionWait(1600*time.Millisecond), 1700*time.Millisecond; got < least {
		t.Errorf("got %v, want at least %v", got, least)
	}
}

// TestLeaseBeginsVersion: another lease needs another version, once the list has settled.
func TestLeaseBeginsVersion(t *testing.T) {
	f := memberlist.Facts[string]{
		Wanted: members("ab"), Lease: 500, Published: true, NextFloor: func(floor int64) int64 { return floor + 1 },
		Adopted: func(string) bool { return true }, Missing: func(string) bool { return false },
	}
	list := f.Next(nil)
	f.Lease = 900
	next := f.Next(list)
	if next.Version != 2 || next.Lease != 900 || next.PreviousLease != 500 || next.LongestLease() != 900 || next.Settled {
		t.Fatalf("got %+v, want version 2 with a lease of 900 after 500", next)
	}
	f.Lease = 100
	if settled := f.Next(next); settled.Version != 2 || settled.Lease != 900 || !settled.Settled {
		t.Errorf("got %+v, want version 2 to settle with its lease", settled)
	}
	third := f.Next(f.Next(next))
	if third.Version != 3 || third.Lease != 100 || third.LongestLease() != 900 {
		t.Errorf("got %+v, want version 3 with a lease of 100 after 900", third)
	}
	f.Wanted = nil
	f.Lease = 300
	if got := f.Next(third); got.Lease != 100 {
		t.Errorf("the list must not change: got %+v", got)
	}
}
