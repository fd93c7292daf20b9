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
	expect.Equalf(t, election.AppendFlag(nil, true)[0] == election.AppendFlag(nil, false)[0], false,
		"true and false have equal encodings")
}

// A term is the version of a list and a counter. All terms of a list are above those of earlier ones.
func TestTerms(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for _, version := range []uint32{0, 1, 1 << 29, election.MaxVersion - 1, random.Uint32N(election.MaxVersion)} {
		first, last := election.FirstTerm(version), election.LastTerm(version)
		if first.Version() != version || last.Version() != version || first.Counter() != 0 || last.Counter() != 1<<16-1 {
			t.Errorf("list %d: got terms from %d to %d", version, first, last)
		}
		expect.Equalf(t, election.FirstTerm(version+1), last+1, "list %d: first term of the next list", version)
		expect.Equalf(t, (first + 7).Counter(), 7, "list %d: counter", version)
		expect.Equalf(t, (first + 7).Version(), version, "list %d: version", version)
	}
	expect.Equalf(t, election.MaxTerm, election.LastTerm(election.MaxVersion), "highest term")
}

// A token rises with the term, whatever the places in the lists, and is different for each place. JavaScript has exact
// integers below 2^53.
func TestTokens(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	for range 2000 {
		term := election.Term(random.Uint64N(uint64(election.MaxTerm))) // one below the highest
		p, q := random.IntN(100), random.IntN(100)
		token := election.TokenOf(term, p)
		must.Equalf(t, token.Term(), term, "term of token %d", token)
		if election.TokenOf(term+1, q) <= token {
			t.Fatalf("got a token of term %d, place %d that isn't above that of term %d, place %d", term+1, q, term, p)
		}
		if (p < q) != (token < election.TokenOf(term, q)) {
			t.Fatalf("term %d: got tokens of the places %d and %d that aren't in order", term, p, q)
		}
	}
	expect.Equalf(t, election.TokenOf(election.MaxTerm, 127), 1<<53-1, "highest token")
}

// Logs and transcripts use the same descriptions.
func TestDescriptions(t *testing.T) {
	roster := mustRoster(t, 3, ring(pairs{{1, 1}}))
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
		"tenure 9, term 2, token 265": election.Event{
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
	expect.Equalf(t, election.Kind(200).Counts(), false, "an unknown kind counts")
}
