package transcript

import (
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/journal"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestMalformedJournals: an agent may answer anything. What Check accepts must not stop the
// program that merges it.
func TestMalformedJournals(t *testing.T) {
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 0))
		algorithm := []string{"Bully", "RingAllIDs", "StatusTable"}[rng.IntN(3)]
		journals := simulate(t, algorithm, 4).journals(func(election.ID) time.Duration { return 0 })
		for range 1 + rng.IntN(6) {
			spoil(rng, &journals[rng.IntN(len(journals))])
		}
		journals = slices.DeleteFunc(journals, func(j journal.Journal) bool { return Check(&j) != nil })
		for _, term := range append(Terms(journals), 0) {
			e := Merge(journals, term)
			if e == nil {
				continue
			}
			e.Describe()
			e.WriteText(io.Discard)
			e.Sequence()
			expect.Succeedf(t, e.WriteMermaid(io.Discard), "seed %d", seed)
		}
	}
}

// spoil changes something in a journal.
func spoil(rng *rand.Rand, j *journal.Journal) {
	if len(j.Steps) == 0 {
		return
	}
	s := &j.Steps[rng.IntN(len(j.Steps))]
	names := []string{"", "ledger-0", "ledger-3", "nobody"}
	name := names[rng.IntN(len(names))]
	switch rng.IntN(10) {
	case 0:
		s.Message = nil
	case 1:
		kinds := []string{"receive", "gone", "tick", "step-down", "adopt"}
		s.Input = kinds[rng.IntN(len(kinds))]
	case 2:
		s.Peer = name
	case 3:
		s.At = []time.Time{{}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), s.At.Add(-time.Hour)}[rng.IntN(3)]
	case 4:
		j.Members = nil
	case 5:
		j.Steps = slices.Delete(j.Steps, 0, rng.IntN(len(j.Steps)))
	case 6:
		other := j.Steps[rng.IntN(len(j.Steps))]
		s.Events, s.Sent = other.Events, other.Sent
	case 7:
		for i := range s.Events {
			s.Events[i].Peer, s.Events[i].Term = name, rng.Uint64N(4)
		}
	case 8:
		if s.Message != nil {
			s.Message.From, s.Message.To = name, names[rng.IntN(len(names))]
		}
	case 9:
		j.Omitted = rng.Uint64N(2)
	}
}
