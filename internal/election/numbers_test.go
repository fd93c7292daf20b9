package election_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
)

// A set of IDs against a map.
func TestIDsAgainstAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	for range 200 {
		var set election.IDs
		model := map[election.ID]bool{}
		for range 60 {
			id := election.ID(1 + random.IntN(12))
			clone, had := set.Clone(), slices.Clone(set)
			if random.IntN(2) == 0 {
				if set.Add(id) == model[id] {
					t.Fatalf("adding %d is new: %v", id, !model[id])
				}
				model[id] = true
			} else {
				if set.Remove(id) != model[id] {
					t.Fatalf("%d was there to remove: %v", id, !model[id])
				}
				delete(model, id)
			}
			if !slices.Equal(clone, had) {
				t.Fatalf("the copy changed with the set: %v, want %v", clone, had)
			}
			if len(set) != len(model) || !slices.IsSorted(set) {
				t.Fatalf("%v, want the keys of %v in order", set, model)
			}
			for id := range election.ID(14) {
				if set.Has(id) != model[id] {
					t.Fatalf("%d in %v: %v", id, set, set.Has(id))
				}
			}
		}
	}
}

// What is encoded one after the other is never taken for something else.
func TestEncodedSetsAndMomentsAreTold(t *testing.T) {
	seen := map[string]string{}
	tell := func(b []byte, what string) {
		if other, found := seen[string(b)]; found && other != what {
			t.Errorf("%s and %s are encoded alike", other, what)
		}
		seen[string(b)] = what
	}
	one, two, both := election.IDs{1}, election.IDs{2}, election.IDs{1, 2}
	tell(two.Encode(one.Encode(nil)), "{1} {2}")
	tell(election.IDs{}.Encode(both.Encode(nil)), "{1 2} {}")
	tell(both.Encode(election.IDs{}.Encode(nil)), "{} {1 2}")
	for _, at := range []election.Tick{1, 2, 300, 1 << 40} {
		tell(election.AppendMoment(nil, at, 0), "a moment to come")
		delete(seen, string(election.AppendMoment(nil, at, 0)))
		tell(election.AppendMoment(nil, at+7, 7), "as far ahead, later")
	}
	if a, b := election.AppendMoment(nil, 5, 5), election.AppendMoment(nil, -40, 5); string(a) != string(b) {
		t.Errorf("what is past isn't alike: %v and %v", a, b)
	}
	never := election.AppendMoment(nil, election.Never, 5)
	if slices.Equal(never, election.AppendMoment(nil, 5, 5)) || slices.Equal(never, election.AppendMoment(nil, 6, 5)) {
		t.Errorf("never is encoded as a moment: %v", never)
	}
	if election.AppendFlag(nil, true)[0] == election.AppendFlag(nil, false)[0] {
		t.Error("yes and no are encoded alike")
	}
}

// A token rises with the term, whatever the priorities, and gives both back.
func TestTokens(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	for range 2000 {
		term := election.Term(random.Uint64N(uint64(election.MaxTerm))) // one below the highest
		p, q := priority(random), priority(random)
		token := election.TokenOf(term, p)
		if token.Term() != term || token.Priority() != p {
			t.Fatalf("token %d of term %d, priority %d gives back %d and %d", token, term, p, token.Term(), token.Priority())
		}
		if election.TokenOf(term+1, q) <= token {
			t.Fatalf("the token of term %d, priority %d isn't above that of term %d, priority %d", term+1, q, term, p)
		}
		if (p < q) != (token < election.TokenOf(term, q)) {
			t.Fatalf("in term %d, the tokens of the priorities %d and %d aren't in order", term, p, q)
		}
	}
	if top := election.TokenOf(election.MaxTerm, election.MaxPriority); top != 1<<64-1 {
		t.Errorf("the highest token is %d", top)
	}
}

func priority(random *rand.Rand) election.Priority {
	return election.Priority(random.Uint32N(uint32(election.MaxPriority) + 1))
}

// A term may be used from Due on, and not before: then the ceiling reaches it.
func TestTermClock(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 5000 {
		c := election.TermClock{
			AtBoot: election.Term(random.Uint64N(1 << 40)), Boot: election.Tick(random.Int64N(1 << 50)),
			TicksPerTerm: election.Tick(1 + random.Int64N(1<<31)),
		}
		if c.Floor() != c.AtBoot || c.Ceiling(c.Boot) != c.AtBoot || c.Ceiling(c.Boot-1000) != c.AtBoot {
			t.Fatalf("%+v: at boot the floor is %d and the ceiling %d", c, c.Floor(), c.Ceiling(c.Boot))
		}
		term := min(election.MaxTerm, c.AtBoot+election.Term(random.Uint64N(1<<44)))
		due := c.Due(term)
		if due < c.Boot {
			t.Fatalf("%+v: term %d is due before the boot, at %d", c, term, due)
		}
		if due != election.Never && c.Ceiling(due) < term {
			t.Fatalf("%+v: term %d is due at %d, when the ceiling is %d", c, term, due, c.Ceiling(due))
		}
		if term > c.AtBoot && due > c.Boot && due != election.Never && c.Ceiling(due-1) >= term {
			t.Fatalf("%+v: term %d could be used before it is due, at %d", c, term, due)
		}
	}
}

func TestTermClockLimits(t *testing.T) {
	var none election.TermClock
	if none.Floor() != 0 || none.Ceiling(0) != election.MaxTerm || none.Due(election.MaxTerm) != 0 {
		t.Errorf("the zero clock forbids something: %d, %d, %d", none.Floor(), none.Ceiling(0), none.Due(election.MaxTerm))
	}
	seconds := election.TermClock{AtBoot: 27_000_000, Boot: 50, TicksPerTerm: 1_000_000_000}
	if got := seconds.Ceiling(50 + 999_999_999); got != 27_000_000 {
		t.Errorf("less than a second after boot the ceiling is %d", got)
	}
	if got := seconds.Ceiling(50 + 1_000_000_000); got != 27_000_001 {
		t.Errorf("a second after boot the ceiling is %d", got)
	}
	if got := seconds.Ceiling(election.Never); got > election.MaxTerm {
		t.Errorf("the ceiling is above all terms: %d", got)
	}
	if got := seconds.Due(election.MaxTerm); got < seconds.Boot {
		t.Errorf("the highest term may be used from %d on, before the boot", got)
	}
}
