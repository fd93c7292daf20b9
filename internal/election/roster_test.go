package election_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// pairs are IDs and priorities of members.
type pairs [][2]uint32

func ring(of pairs) []election.Member {
	members := make([]election.Member, len(of))
	for i, m := range of {
		members[i] = election.Member{ID: election.ID(m[0]), Priority: election.Priority(m[1])}
	}
	return members
}

func TestInvalidMemberLists(t *testing.T) {
	type list = pairs
	for name, c := range map[string]struct {
		ring list
		want string
	}{
		"no members":                 {nil, "a member list needs at least one member"},
		"no ID":                      {list{{1, 1}, {0, 2}}, "member 2 of the list has no ID"},
		"no ID, first":               {list{{0, 2}, {1, 1}}, "member 1 of the list has no ID"},
		"all without ID":             {list{{0, 2}}, "member 1 of the list has no ID"},
		"an ID twice":                {list{{1, 1}, {2, 2}, {1, 3}}, "member ID 1 is on the list twice"},
		"a priority twice":           {list{{1, 7}, {2, 2}, {3, 7}}, "members 1 and 3 have the same priority 7"},
		"a priority that is too big": {list{{1, 16384}}, "priority 16384 is above the limit of 16383"},
		"an ID that is too big":      {list{{1, 1}, {1048577, 2}}, "member ID 1048577 is above the limit of 1048576"},
		"an absurd ID":               {list{{1<<32 - 1, 1}}, "member ID 4294967295 is above the limit of 1048576"},
		"observers only":             {list{{1, 0}, {2, 0}}, "every member has priority 0: no process could ever be elected"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := election.NewRoster(1, ring(c.ring))
			if r != nil || err == nil || err.Error() != c.want {
				t.Errorf("got %v, %v, want the error %q", r, err, c.want)
			}
		})
	}
}

func TestMemberListLimits(t *testing.T) {
	_, err := election.NewRoster(election.MaxVersion+1, ring(pairs{{1, 1}}))
	if err == nil || err.Error() != "version 1073741824 is above the limit of 1073741823" {
		t.Errorf("got error %v, want that the version is too high", err)
	}
	top := election.Member{ID: election.MaxID, Priority: election.MaxPriority}
	r, err := election.NewRoster(election.MaxVersion, append(ring(pairs{{1, 0}, {2, 0}}), top))
	must.Succeed(t, err)
	if !r.Has(election.MaxID) || r.Priority(election.MaxID) != election.MaxPriority || r.Rank(2) != 2 {
		t.Errorf("got members %v, want those at the limits", r.Ranked())
	}
}

// members returns n members in a random order, with random IDs and priorities. About a quarter of them are observers.
func members(random *rand.Rand, n int) []election.Member {
	ids, priorities := random.Perm(3*n), random.Perm(5*n)
	ring := make([]election.Member, n)
	for i := range ring {
		ring[i] = election.Member{ID: election.ID(1 + ids[i]), Priority: election.Priority(1 + priorities[i])}
		if i > 0 && random.IntN(4) == 0 {
			ring[i].Priority = 0
		}
	}
	random.Shuffle(n, func(i, j int) { ring[i], ring[j] = ring[j], ring[i] })
	return ring
}

func mustRoster(t *testing.T, version uint32, ring []election.Member) *election.Roster {
	t.Helper()
	r, err := election.NewRoster(version, ring)
	must.Succeed(t, err)
	return r
}

// A member list compared with the slice that it was created from.
func TestRosterMatchesSlice(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		ring := members(random, 1+random.IntN(20))
		given := slices.Clone(ring)
		r := mustRoster(t, 1, given)
		given[0] = election.Member{} // the list must have a copy
		if r.Len() != len(ring) || r.Majority() != len(ring)/2+1 || !slices.Equal(r.Ring(), ring) {
			t.Fatalf("created from %v: got ring %v, majority %d", ring, r.Ring(), r.Majority())
		}
		for id := range election.ID(3*len(ring) + 3) {
			checkMember(t, r, ring, id)
		}
		for i, m := range r.Ranked() {
			must.Equalf(t, r.Rank(m.ID), i, "%d at %d: rank", m.ID, i)
		}
	}
}

func checkMember(t *testing.T, r *election.Roster, ring []election.Member, id election.ID) {
	t.Helper()
	at := slices.IndexFunc(ring, func(m election.Member) bool { return m.ID == id })
	if r.Has(id) != (at >= 0) {
		t.Fatalf("Has(%d) = %v on %v", id, r.Has(id), ring)
	}
	if at < 0 {
		if r.Rank(id) != len(ring) || r.Priority(id) != 0 || r.After(id, 1) != election.None {
			t.Fatalf("%d, not a member: got rank %d, priority %d, and %d after it",
				id, r.Rank(id), r.Priority(id), r.After(id, 1))
		}
		return
	}
	must.Equalf(t, r.Priority(id), ring[at].Priority, "%d: priority on %v", id, ring)
	for steps := range 2*len(ring) + 1 {
		must.Equalf(t, r.After(id, steps), ring[(at+steps)%len(ring)].ID, "%d places after %d on %v", steps, id, ring)
	}
	for _, other := range ring {
		if ring[at].Priority > other.Priority != r.Outranks(id, other.ID) && other.Priority != ring[at].Priority {
			t.Fatalf("%d outranks %d: got %v on %v", id, other.ID, r.Outranks(id, other.ID), ring)
		}
		if r.Outranks(id, other.ID) && r.Outranks(other.ID, id) {
			t.Fatalf("got %d and %d outranking each other, want one of them", id, other.ID)
		}
	}
	if !r.Outranks(id, election.None) || r.Outranks(election.None, id) {
		t.Fatalf("%d: got a wrong rank relative to None", id)
	}
}

// At most two lists are in force at once.
func TestSucceedRetainsOnePreviousList(t *testing.T) {
	first := mustRoster(t, 1, ring(pairs{{1, 1}, {2, 2}}))
	second := mustRoster(t, 2, ring(pairs{{2, 2}, {3, 3}})).Succeed(first, 1)
	third := mustRoster(t, 3, ring(pairs{{3, 3}})).Succeed(second)
	switch {
	case second.Previous == nil || second.Previous.Version != 1 || !slices.Equal(second.Departed, []election.ID{1}):
		t.Errorf("second list: got previous %v, departed %v", second.Previous, second.Departed)
	case third.Previous == nil || third.Previous.Version != 2:
		t.Errorf("third list: got previous %v, want version 2", third.Previous)
	case third.Previous.Previous != nil || third.Previous.Departed != nil:
		t.Errorf("got a previous list that has a previous list itself, want none")
	case second.Previous == first || second.Previous.Previous != nil:
		t.Errorf("got a list changed by the one that replaces it, want it unchanged")
	}
}

// A member continues under a list if the previous one names the same state directory for it, or none.
func TestMemberContinuesWithItsStateDirectory(t *testing.T) {
	first := mustRoster(t, 1, []election.Member{
		{ID: 1, Priority: 1, Identity: 11},
		{ID: 2, Priority: 2, Identity: 12},
		{ID: 3, Priority: 3},
		{ID: 4, Priority: 4, Identity: 14},
	})
	second := mustRoster(t, 2, []election.Member{
		{ID: 5, Priority: 5, Identity: 15},
		{ID: 1, Priority: 1, Identity: 11},
		{ID: 2, Priority: 2, Identity: 22},
		{ID: 3, Priority: 3, Identity: 13},
		{ID: 6, Priority: 6},
	}).Succeed(first)
	for id, want := range map[election.ID]bool{1: true, 2: false, 3: true, 4: true, 5: false, 6: false, 9: false} {
		expect.Equalf(t, second.Continues(id), want, "member %d: continues", id)
		expect.Equalf(t, first.Continues(id), false, "member %d under the first list: continues", id)
	}
	for id, want := range map[election.ID]election.Identity{5: 15, 1: 11, 2: 22, 3: 13, 6: 0, 4: 0} {
		expect.Equalf(t, second.Identity(id), want, "member %d: identity", id)
	}
	for id, want := range map[election.ID]int{5: 0, 1: 1, 6: 4, 4: -1, 99: -1} {
		expect.Equalf(t, second.Place(id), want, "member %d: place", id)
	}
	later := *second
	later.Departed = []election.ID{4}
	expect.Equalf(t, second.Publication(), 4, "publication")
	expect.Equalf(t, later.Publication(), 5, "publication with a departed member")
}

func TestInvalidConfigs(t *testing.T) {
	roster := mustRoster(t, 1, ring(pairs{{1, 1}, {2, 2}}))
	good := election.Config{Self: 1, Roster: roster, Coordinator: 2, Term: 3, Timing: election.DefaultTiming(5, 1)}
	must.Succeedf(t, good.Validate(), "valid configuration")
	for want, invalidate := range map[string]func(*election.Config){
		"no member list":                          func(c *election.Config) { c.Roster = nil },
		"process 9 is not on the member list":     func(c *election.Config) { c.Self = 9 },
		"the coordinator 9 is not on the member":  func(c *election.Config) { c.Coordinator = 9 },
		"term 70368744177664 is above the limit":  func(c *election.Config) { c.Term = election.MaxTerm + 1 },
		"reply (0 ticks) and for a hop (12) must": func(c *election.Config) { c.Timing.Reply = 0 },
		"reply (12 ticks) and for a hop (-1)":     func(c *election.Config) { c.Timing.Hop = -1 },
		"takeover (12 ticks) must be longer than": func(c *election.Config) { c.Timing.Takeover = c.Timing.Reply },
	} {
		c := good
		invalidate(&c)
		expect.ErrorContainsf(t, c.Validate(), want, "Validate")
		if _, err := election.NewProcess(c); err == nil {
			t.Errorf("got a process, want an error containing %q", want)
		}
	}
}

// T is at least 2*Ttrans + Tproc, and T' is longer than T (docs/algorithms).
func TestDefaultTiming(t *testing.T) {
	for trans := election.Tick(1); trans < 50; trans++ {
		for proc := range election.Tick(20) {
			timing := election.DefaultTiming(trans, proc)
			if timing.Reply < 2*trans+proc || timing.Takeover <= timing.Reply || timing.Hop < trans+proc {
				t.Fatalf("Ttrans %d, Tproc %d: %+v", trans, proc, timing)
			}
		}
	}
}
