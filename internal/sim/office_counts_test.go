package sim

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// The most messages that the contract has for the end of the highest of five. In
// the bullies the highest that lives acts first, which is the best case. Once
// round a ring takes longer here than the others wait with theirs, so each of the
// four may start an election of the ring.
var maxMessagesOfFive = map[string]int{
	"Bully": 3, "StatusTable": 3, "RingAllIDs": 4 * 25, "RingChampion": 4 * 14, "RingActiveList": 4 * 16, "RingSkip": 4 * 8,
}

// Around an election, too, the coordinator's end costs no more messages than the
// textbook says, and nothing but that end costs any. (In Strict the lease has to
// be waited out, and elections may be repeated meanwhile.)
func TestAnOfficeElectsWithinTheCounts(t *testing.T) {
	for _, algorithm := range catalog.All() {
		for _, mode := range []office.Mode{office.Available, office.Majority} {
			t.Run(algorithm.Name+"/"+mode.String(), func(t *testing.T) {
				w, err := newSimulation(settings{algorithm: algorithm, mode: mode, size: 5})
				if err != nil {
					t.Fatal(err)
				}
				for seed := range uint64(200) {
					if n := w.countElection(t, seed); n < 3 || n > maxMessagesOfFive[algorithm.Name] {
						t.Fatalf("seed %d: %d messages of the election, want 3 to %d", seed, n, maxMessagesOfFive[algorithm.Name])
					}
				}
			})
		}
	}
}

// countElection ends the coordinator, which all notice in time, and counts the
// messages of the election that follows.
func (s *simulation) countElection(t *testing.T, seed uint64) (counted int) {
	t.Helper()
	s.watch = func(step Step) {
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
	if counted > 0 {
		t.Fatalf("seed %d: %d messages before anything has happened", seed, counted)
	}
	s.runUntil(at + convergeWithin)
	if v, says := s.checker.violation, s.disagreement(); v != nil || says != "" {
		t.Fatalf("seed %d: %v, %s", seed, v, says)
	}
	return counted
}

// until lets everything happen that is due by then.
func (s *simulation) runUntil(then election.Tick) {
	for s.queue.now < then {
		e, more := s.queue.pop()
		if !more {
			return
		}
		s.handle(e)
	}
}
