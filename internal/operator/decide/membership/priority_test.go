package membership

import (
	"math/rand/v2"
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestAssignPriorities tests with random ranks and priorities that the new priorities are
// unique and keep the order, and that as few as possible change.
func TestAssignPriorities(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		all := randomCandidates(rng)
		before := map[string]int32{}
		for _, c := range all {
			before[c.name] = c.priority
		}
		assignPriorities(all, "")
		changed := 0
		for i, c := range all {
			if c.priority < 0 || c.priority > v1.MaxPriority || (c.priority == 0) != (c.rank == 0) {
				t.Fatalf("rank %d: got priority %d", c.rank, c.priority)
			}
			for _, other := range all[:i] {
				switch {
				case c.rank == 0 || other.rank == 0:
				case c.priority == other.priority:
					t.Fatalf("two candidates got priority %d", c.priority)
				case c.rank > other.rank != (c.priority > other.priority) && c.rank != other.rank:
					t.Fatalf("ranks %d and %d: got priorities %d and %d", c.rank, other.rank, c.priority, other.priority)
				case c.rank == other.rank && before[c.name] > before[other.name] != (c.priority > other.priority) &&
					before[c.name] != before[other.name]:
					t.Fatalf("two candidates of the same rank with priorities %d and %d have changed their order",
						before[c.name], before[other.name])
				}
			}
			if before[c.name] != 0 && c.rank != 0 && before[c.name] != c.priority {
				changed++
			}
		}
		again := map[string]int32{}
		for _, c := range all {
			again[c.name] = c.priority
		}
		assignPriorities(all, "")
		for _, c := range all {
			if c.priority != again[c.name] {
				t.Fatalf("got priority %d and then %d from the same input", again[c.name], c.priority)
			}
		}
		if least := fewestChanges(all, before); changed > least {
			t.Fatalf("got %d changes, want %d", changed, least)
		}
	}
}

// The preferred candidate is above all of its rank and below the next rank, for any number of moves.
func TestAssignPrioritiesToPreferred(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		all := randomCandidates(rng)
		assignPriorities(all, "")
		preferred := all[rng.IntN(len(all))]
		assignPriorities(all, preferred.name)
		for _, c := range all {
			if c != preferred && c.rank == preferred.rank && c.rank > 0 && c.priority > preferred.priority {
				t.Fatalf("got %d for the preferred candidate, and %d for another of its rank", preferred.priority, c.priority)
			}
			if c.rank > preferred.rank && c.priority <= preferred.priority {
				t.Fatalf("got %d for the preferred candidate, and %d for one of a higher rank", preferred.priority, c.priority)
			}
		}
	}
	all := []*candidate{
		{name: "a", rank: 1, rankKnown: true}, {name: "b", rank: 1, rankKnown: true}, {name: "c", rank: 1, rankKnown: true},
	}
	for i := range 2 * v1.MaxPriority {
		preferred := all[i%3]
		assignPriorities(all, preferred.name)
		for _, c := range all {
			if c.priority < 1 || c.priority > v1.MaxPriority || c != preferred && c.priority >= preferred.priority {
				t.Fatalf("move %d: got %d for the preferred candidate, and %d for another", i, preferred.priority, c.priority)
			}
		}
	}
}

func randomCandidates(rng *rand.Rand) []*candidate {
	var all []*candidate
	taken := map[int32]bool{}
	top := []int64{4, 12, v1.MaxPriority}[rng.IntN(3)]
	for i := range 1 + rng.IntN(7) {
		c := &candidate{name: string(rune('a' + i)), rankKnown: true}
		c.rank = rng.Int64N(top + 1)
		if top > 12 {
			c.rank = max(0, top-rng.Int64N(9))
		}
		c.preferred = c.rank
		if p := int32(max(0, min(v1.MaxPriority, c.rank+rng.Int64N(9)-4))); rng.IntN(3) > 0 && !taken[p] {
			c.priority = p
			taken[p] = true
		}
		all = append(all, c)
	}
	return all
}

// fewestChanges returns the minimum number of changed priorities, by trying all choices.
func fewestChanges(all []*candidate, before map[string]int32) int {
	var order []*candidate // in the resulting order, which is the only correct one
	for _, c := range all {
		if c.rank != 0 {
			order = append(order, c)
		}
	}
	for i := range order {
		for j := range order[:i] {
			if order[j].priority > order[i].priority {
				order[i], order[j] = order[j], order[i]
			}
		}
	}
	had := 0
	for _, c := range order {
		if before[c.name] != 0 {
			had++
		}
	}
	best := had
	for keep := range 1 << len(order) {
		last, at, kept, ok := int64(0), -1, 0, true
		for i, c := range order {
			if keep&(1<<i) == 0 {
				continue
			}
			p := int64(before[c.name])
			ok = ok && p != 0 && p-last >= int64(i-at)
			last, at, kept = p, i, kept+1
		}
		if ok && v1.MaxPriority-last >= int64(len(order)-1-at) {
			best = min(best, had-kept)
		}
	}
	return best
}

// TestFloor is the history of the floor of one group. It rises when a list begins, members
// depart, or the list settles: to the operator's clock reading plus the accepted skew. If
// the clock is behind the floor, to the term that agents may have reached above it.
func TestFloor(t *testing.T) {
	f := newDeclaredFacts("a 10, b 20, c 30, d 40, e 50")
	start := control.EpochAt(noon)
	const skew, reached = int64(control.AcceptedSkew / control.EpochDuration), 51
	at := func(d time.Duration) { f.Now = noon.Add(d) }
	f.step()
	for _, step := range []struct {
		name   string
		change func()
		floor  int64
	}{
		{"the second list", func() { f.Group.Spec.Members = parseMembers("a 10, b 20") }, skew},
		{"nothing changes", func() { at(time.Second) }, skew},
		{"a member departs", func() { f.Missing["c"] = true }, skew + reached},
		{"the clock goes on", func() { at(2 * time.Second) }, skew + reached},
		{"another one departs under the same version", func() { f.Missing["d"] = true }, skew + reached + 50},
		{"the list settles", func() { at(40 * time.Second); f.Adopted["a"] = true }, 1000 + skew},
		{"it has settled", func() { at(41 * time.Second) }, 1000 + skew},
		{
			"the third list begins soon",
			func() { clear(f.Adopted); clear(f.Missing); f.Group.Spec.Members = parseMembers("a 10") }, 1000 + skew + reached,
		},
		{"another operator's clock is behind", func() { at(-time.Hour); f.Missing["b"] = true }, 1000 + skew + reached + 1},
		{"a newer term was reported", func() { f.Group.Status.Term = (start+2500)<<4 + 5; f.Adopted["a"] = true }, 2500},
		{"the fourth list begins later", func() { at(time.Hour); f.Group.Spec.Members = parseMembers("a 20") }, 90000 + skew},
	} {
		step.change()
		floor := *f.step().List.Floor
		expect.Equalf(t, floor>>4-start, step.floor, "%s: floor epochs above the first one", step.name)
		if counter := floor & 15; counter != 15 && counter != 5 {
			t.Errorf("%s: got floor %d, want the last term of an epoch, or the reported one", step.name, floor)
		}
	}
}

// TestFloorBoundsTermsThatTheOperatorHasNotSeen: members depart in quick succession, and between
// any two steps the others, whose clocks are ahead by the accepted skew, use the highest
// term that they may use. The operator sees none of these terms.
func TestFloorBoundsTermsThatTheOperatorHasNotSeen(t *testing.T) {
	f := newDeclaredFacts("a 10, b 20, c 30, d 40, e 50, f 60, g 70")
	f.step()
	f.Group.Spec.Members = parseMembers("a 10")
	f.step()
	for i, departed := range []string{"b", "c", "d", "e"} {
		f.Now = noon.Add(time.Duration(i) * time.Second)
		list := f.Group.Status.Protocol.MemberList
		fastest := election.TermClock{
			AtBoot: election.Epoch(control.EpochAt(f.Now.Add(control.AcceptedSkew))), TicksPerEpoch: 1,
			ListFloor: election.Term(*list.Floor),
		}
		used := int64(fastest.Ceiling(0))
		f.Missing[departed] = true
		expect.AtLeastf(t, *f.step().List.Floor, used,
			"after the departure of %s: floor (which members may have used)", departed)
	}
}

// TestAgentsReceiveTheFloor tests that a floor that has increased is in a newer document.
func TestAgentsReceiveTheFloor(t *testing.T) {
	f := newDeclaredFacts("a 10, b 20, c 30")
	f.step()
	f.Group.Spec.Members = parseMembers("a 10")
	before := f.step().Document
	f.Now = noon.Add(time.Second)
	f.Missing["c"] = true
	after := f.step().Document
	if after.Group.Version != before.Group.Version || after.Group.Floor < before.Group.Floor+10 ||
		after.Revision <= before.Revision {
		t.Errorf("got version %d, floor %d in revision %d after version %d, floor %d in revision %d; want a newer revision "+
			"with a floor of at least 10 more",
			after.Group.Version, after.Group.Floor, after.Revision, before.Group.Version, before.Group.Floor, before.Revision)
	}
}

// TestTermsOfOperatorAndAgentsAgree tests that both derive the same term from the time.
func TestTermsOfOperatorAndAgentsAgree(t *testing.T) {
	for _, at := range []time.Time{noon, noon.Add(time.Second), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)} {
		agents := int64(clock.New(at).CurrentTerm())
		if operators := control.TermAt(at); operators > agents || agents > operators+10 {
			t.Errorf("at %v: got term %d of the operator, want %d as of the agents", at, operators, agents)
		}
	}
	if skew := election.Epoch(control.AcceptedSkew / control.EpochDuration); skew != election.AcceptedSkew {
		t.Errorf("got accepted skew of %d epochs, want %d as of the agents", skew, election.AcceptedSkew)
	}
	if control.MaxTerm != int64(election.MaxTerm) {
		t.Errorf("got maximum term %d, want %d as of the agents", control.MaxTerm, election.MaxTerm)
	}
}
