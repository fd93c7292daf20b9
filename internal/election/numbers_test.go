package election_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// A set of IDs compared with a map.
func TestIDsMatchMap(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	for range 200 {
		var set election.IDs
		model := map[election.ID]bool{}
		for range 60 {
			id := election.ID(1 + random.IntN(12))
			clone, had := set.Clone(), slices.Clone(set)
			if random.IntN(2) == 0 {
				if set.Add(id) == model[id] {
					t.Fatalf("adding %d: want %v", id, !model[id])
				}
				model[id] = true
			} else {
				if set.Remove(id) != model[id] {
					t.Fatalf("removing %d: want %v", id, !model[id])
				}
				delete(model, id)
			}
			if !slices.Equal(clone, had) {
				t.Fatalf("copy: got %v, want %v", clone, had)
			}
			if len(set) != len(model) || !slices.IsSorted(set) {
				t.Fatalf("got %v, want the keys of %v in order", set, model)
			}
			for id := range election.ID(14) {
				must.Equalf(t, set.Has(id), model[id], "%d in %v", id, set)
			}
		}
	}
}

// Different sequences of encoded values have different encodings.
func TestEncodingsAreDistinct(t *testing.T) {
	seen := map[string]string{}
	check := func(b []byte, what string) {
		if other, found := seen[string(b)]; found && other != what {
			t.Errorf("%s and %s: got equal encodings, want different ones", other, what)
		}
		seen[string(b)] = what
	}
	one, two, both := election.IDs{1}, election.IDs{2}, election.IDs{1, 2}
	check(two.Encode(one.Encode(nil)), "{1} {2}")
	check(election.IDs{}.Encode(both.Encode(nil)), "{1 2} {}")
	check(both.Encode(election.IDs{}.Encode(nil)), "{} {1 2}")
	for _, at := range []election.Tick{1, 2, 300, 1 << 40} {
		check(election.AppendMoment(nil, at, 0), "a future moment")
		delete(seen, string(election.AppendMoment(nil, at, 0)))
		check(election.AppendMoment(nil, at+7, 7), "the same distance, later")
	}
	if a, b := election.AppendMoment(nil, 5, 5), election.AppendMoment(nil, -40, 5); string(a) != string(b) {
		t.Errorf("past moments: got %v and %v, want equal encodings", a, b)
	}
	never := election.AppendMoment(nil, election.Never, 5)
	if slices.Equal(never, election.AppendMoment(nil, 5, 5)) || slices.Equal(never, election.AppendMoment(nil, 6, 5)) {
		t.Errorf("never: got the encoding %v of a moment, want another one", never)
	}
	if election.AppendFlag(nil, true)[0] == election.AppendFlag(nil, false)[0] {
		t.Error("true and false: got equal encodings, want different ones")
	}
}

// A token rises with the term, whatever the priorities, and contains both.
func TestTokens(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	for range 2000 {
		term := election.Term(random.Uint64N(uint64(election.MaxTerm))) // one below the highest
		p, q := priority(random), priority(random)
		token := election.TokenOf(term, p)
		if token.Term() != term || token.Priority() != p {
			t.Fatalf("token %d of term %d, priority %d: got %d and %d", token, term, p, token.Term(), token.Priority())
		}
		if election.TokenOf(term+1, q) <= token {
			t.Fatalf("got a token of term %d, priority %d that isn't above that of term %d, priority %d", term+1, q, term, p)
		}
		if (p < q) != (token < election.TokenOf(term, q)) {
			t.Fatalf("term %d: got tokens of the priorities %d and %d that aren't in order", term, p, q)
		}
	}
	if top := election.TokenOf(election.MaxTerm, election.MaxPriority); top != 1<<58-1 {
		t.Errorf("highest token: got %d, want 1<<58 - 1", top)
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
			AtBoot: election.Epoch(random.Uint64N(1 << 34)), Boot: election.Tick(random.Int64N(1 << 50)),
			TicksPerEpoch: election.Tick(1 + random.Int64N(1<<31)),
		}
		last := c.AtBoot.Last()
		if c.Floor() != last || c.Ceiling(c.Boot) != last || c.Ceiling(c.Boot-1000) != last {
			t.Fatalf("%+v: at boot got floor %d and ceiling %d", c, c.Floor(), c.Ceiling(c.Boot))
		}
		term := min(election.MaxTerm, last+election.Term(random.Uint64N(1<<44)))
		due := c.Due(term)
		if due < c.Boot {
			t.Fatalf("%+v: term %d: got due at %d, before the boot", c, term, due)
		}
		if due != election.Never && c.Ceiling(due) < term {
			t.Fatalf("%+v: term %d, due at %d: got ceiling %d", c, term, due, c.Ceiling(due))
		}
		if term > last && due > c.Boot && due != election.Never && c.Ceiling(due-1) >= term {
			t.Fatalf("%+v: term %d: got a ceiling that reaches it before it is due, at %d", c, term, due)
		}
	}
}

func TestTermClockLimits(t *testing.T) {
	var none election.TermClock
	if none.Floor() != 0 || none.Ceiling(0) != election.MaxTerm || none.Due(election.MaxTerm) != 0 {
		t.Errorf("zero clock: got floor %d, ceiling %d, due %d, want no restriction", none.Floor(), none.Ceiling(0),
			none.Due(election.MaxTerm))
	}
	seconds := election.TermClock{AtBoot: 27_000_000, Boot: 50, TicksPerEpoch: 1_000_000_000}
	expect.Equalf(t, seconds.Ceiling(50+999_999_999).Epoch(), 27_000_000, "less than a second after boot: ceiling")
	expect.Equalf(t, seconds.Ceiling(50+1_000_000_000).Epoch(), 27_000_001, "second after boot: ceiling")
	expect.AtMostf(t, seconds.Ceiling(election.Never), election.MaxTerm, "ceiling")
	if got := seconds.Due(election.MaxTerm); got < seconds.Boot {
		t.Errorf("highest term: got due at %d, before the boot", got)
	}
}

// While the clock is behind the floor of the list, the reading is above the floor, it rises whenever the clock has
// risen by thirty epochs, and the next floor exceeds it. At any time, it permits fifteen elections.
func TestTermClockBehindFloorOfList(t *testing.T) {
	const epoch, ticks = election.Epoch(10_000), 10
	for _, floor := range []election.Term{epoch.First(), epoch.Last()} {
		for wall := epoch - 2*election.AcceptedSkew; wall < epoch+200; wall++ {
			c := election.TermClock{AtBoot: wall, Boot: 5, TicksPerEpoch: ticks, ListFloor: floor}
			ceiling := c.Ceiling(5)
			if ceiling < floor+15 || ceiling.Epoch() < wall || ceiling != c.Floor() || c.Due(floor+15) != c.Boot {
				t.Fatalf("clock at %d: got ceiling %d and floor %d, want at least %d", wall, ceiling, c.Floor(), floor+15)
			}
			if due := c.Due(ceiling + 1); c.Ceiling(due) < ceiling+1 || c.Ceiling(due-1) != ceiling || due > 5+30*ticks {
				t.Fatalf("clock at %d, ceiling %d: got the next term due at %d", wall, ceiling, due)
			}
			for _, publisher := range []election.Epoch{wall - election.AcceptedSkew, wall, wall + election.AcceptedSkew} {
				if next := election.NextFloor(floor, publisher); next < ceiling {
					t.Fatalf("clock at %d: got floor %d of the next list, want at least the ceiling, %d", wall, next, ceiling)
				}
			}
		}
		c := election.TermClock{AtBoot: epoch + 200, TicksPerEpoch: ticks, ListFloor: floor}
		if c.Ceiling(0) != (epoch+200).Last() || election.NextFloor(0, 700) != (700+election.AcceptedSkew).Last() {
			t.Errorf("got ceiling %d and floor %d, want those of the clock", c.Ceiling(0), election.NextFloor(0, 700))
		}
	}
}

// Later tells what the clock of another process permits at most, and not much more. While that clock is behind the
// floor, its reading hardly rises.
func TestLaterCeilingOfAnotherClock(t *testing.T) {
	const epoch, ticks = election.Epoch(10_000), 10
	for _, floor := range []election.Term{0, epoch.First(), epoch.Last()} {
		mine := election.TermClock{AtBoot: epoch + 300, TicksPerEpoch: ticks, ListFloor: floor}
		at := func(wall election.Epoch) election.Term { return mine.Corrected(wall, 0).Floor() }
		for wall := epoch - 2*election.AcceptedSkew; wall < epoch+200; wall += 7 {
			for _, epochs := range []election.Epoch{0, 1, 29, 30, 31, 500, 3000} {
				got, least, most := mine.Later(at(wall), election.Tick(epochs*ticks)), at(wall+epochs), at(wall+epochs+30)
				if got < least || got > most || (floor == 0 || epochs == 0) && got > least {
					t.Fatalf("floor %d, clock at %d: after %d epochs got %d, want %d to %d", floor, wall, epochs, got, least, most)
				}
			}
		}
	}
}

// Logs and transcripts use the same descriptions.
func TestDescriptions(t *testing.T) {
	roster := mustRoster(t, 3, []election.Member{{1, 1}})
	ring := election.Message{
		Kind: election.ElectMe, From: 3, To: 4, Term: 2, Subject: 1, Origin: 1, Hops: 2, List: []election.ID{1, 3},
	}
	beat := election.Message{
		Kind: election.Beat, From: 3, To: 4, Term: 2, Subject: 3, Hold: election.Hold{Held: true, Ready: true},
	}
	for want, got := range map[string]string{
		"4 -> 9 ELECTION term 2 about 10": election.Message{
			Kind: election.Election, From: 4, To: 9, Term: 2, Subject: 10,
		}.Describe(),
		"3 -> 4 ELECT_ME term 2 about 1 from 1, hop 2 [1 3]": ring.Describe(),
		"3 -> 4 BEAT term 2 held ready":                      beat.Describe(),
		"0 -> 0 UNKNOWN term 0":                              election.Message{Kind: 200}.Describe(),
		"elected 9, term 2": election.Event{
			Kind: election.Elected, Peer: 9, Term: 2,
		}.Describe(),
		"started, term 2": election.Event{Kind: election.Started, Term: 2}.Describe(),
		"tenure 9, term 2, token 32777": election.Event{
			Kind: election.TenureStarted, Peer: 9, Term: 2, Token: election.TokenOf(2, 9),
		}.Describe(),
		"unknown, term 0":                       election.Event{Kind: 99}.Describe(),
		"tick":                                  election.Input{Kind: election.TimePassed}.Describe(),
		"suspect 4":                             election.Input{Kind: election.Suspect, Peer: 4}.Describe(),
		"receive 3 -> 4 BEAT term 2 held ready": election.Input{Kind: election.Receive, Message: beat}.Describe(),
		"undelivered 3 -> 4 BEAT term 2 held ready": election.Input{Kind: election.Undelivered, Message: beat}.Describe(),
		"adopt nothing":   election.Input{Kind: election.Adopt}.Describe(),
		"adopt version 3": election.Input{Kind: election.Adopt, Roster: roster}.Describe(),
		"unknown 4":       election.Input{Kind: 99, Peer: 4}.Describe(),
		"Unknown":         election.Unknown.String(),
		"Crashed":         election.Crashed.String(),
	} {
		expect.Equal(t, got, want)
	}
}

// The counting rule: the messages of the office never count, all others do.
func TestCountedKinds(t *testing.T) {
	office := []election.Kind{
		election.NoKind, election.Beat, election.Grant, election.Deny, election.Resigned, election.Probe,
	}
	for kind := election.NoKind; kind <= election.Probe; kind++ {
		want := !slices.Contains(office, kind)
		if kind.Counts() != want || slices.Contains(election.Kinds(), kind) != want {
			t.Errorf("%s: got Counts %v and in Kinds %v, want %v",
				kind, kind.Counts(), slices.Contains(election.Kinds(), kind), want)
		}
	}
	if election.Kind(200).Counts() {
		t.Error("unknown kind: got Counts true, want false")
	}
}
