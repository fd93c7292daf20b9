package sim

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/diagram"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// maxMessagesOfFive is the most messages that the formulas allow when the highest of
// five processes crashes. In the bully algorithms, the highest live process starts
// first, which is the best case. A message takes longer to pass round the ring than
// the other processes wait, so each of the four may start an election on the ring.
var maxMessagesOfFive = map[string]int{
	"Bully": 3, "StatusTable": 3, "RingAllIDs": 4 * 25, "RingChampion": 4 * 14, "RingActiveList": 4 * 16, "RingSkip": 4 * 8,
}

// With offices, too, the crash of the coordinator costs no more messages than the
// formulas allow, and nothing else costs any. Strict mode is excluded: there,
// elections may be repeated until the lease has expired.
func TestOfficeElectsWithinCounts(t *testing.T) {
	for _, algorithm := range catalog.All() {
		for _, mode := range []office.Mode{office.Available, office.Majority} {
			t.Run(algorithm.Name+"/"+mode.String(), func(t *testing.T) {
				s, err := newSimulation(settings{algorithm: algorithm, mode: mode, size: 5})
				must.Succeed(t, err)
				for seed := range uint64(200) {
					if n := s.countElection(t, seed); n < 3 || n > maxMessagesOfFive[algorithm.Name] {
						t.Fatalf("seed %d: got %d messages of the election, want 3 to %d", seed, n, maxMessagesOfFive[algorithm.Name])
					}
				}
			})
		}
	}
}

// countElection crashes the coordinator, notifies all other processes in time, and
// counts the messages of the election that follows.
func (s *simulation) countElection(t *testing.T, seed uint64) (counted int) {
	t.Helper()
	s.watch = func(step diagram.Step) {
		if step.Output == nil {
			return
		}
		for i := range step.Output.Send {
			if step.Output.Send[i].Kind.Counts() {
				counted++
			}
		}
	}
	s.start(seed)
	const at = 4 * lease
	s.schedule.push(s, action{at: at, kind: actCrash, target: 5, silent: true})
	for id := election.ID(1); id < 5; id++ {
		noticedAt := at + election.Tick(s.rng.between(1, int(transMax)))
		s.queue.push(event{at: noticedAt, kind: eventPeerEnded, process: id, peer: 5, slot: 1})
	}
	s.runUntil(at - 1)
	must.Equalf(t, counted, 0, "seed %d: messages before the crash", seed)
	s.runUntil(at + convergeWithin)
	if v, disagreement := s.checker.violation, s.disagreement(); v != nil || disagreement != "" {
		t.Fatalf("seed %d: got violation %v and disagreement %q, want none", seed, v, disagreement)
	}
	return counted
}

// runUntil handles all events that are due by a given time.
func (s *simulation) runUntil(then election.Tick) {
	for s.queue.now < then {
		e, more := s.queue.pop()
		if !more {
			return
		}
		s.handle(e)
	}
}
