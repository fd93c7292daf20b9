package office

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// Agents count nanoseconds. The delays of different processes are in each quarter of the range, also
// for a long heartbeat. In agents, each process has ID 1, and a life of its own.
func TestBackoffUsesItsWholeRange(t *testing.T) {
	for _, interval := range []election.Tick{20, 100e6, 5e9} {
		const processes = 64
		var quarters [4]int
		for life := range uint32(processes) {
			m := Machine{vacancy: vacancy{attempts: maxAttempts}}
			m.cfg.Self, m.cfg.Life, m.cfg.Heartbeat = 1, 0x5bd1e995*life, interval
			longest := interval << (maxAttempts - 2)
			delay := m.backoff()
			if delay < longest/2 || delay > longest {
				t.Fatalf("got a delay of %d, want one between %d and %d", delay, longest/2, longest)
			}
			quarters[min(int((delay-longest/2)*8/longest), 3)]++
		}
		for i, n := range quarters {
			if n < processes/8 {
				t.Errorf("heartbeat %d: got %d of %d delays in quarter %d of the range, want %d at least", interval, n,
					processes, i+1, processes/8)
			}
		}
	}
}

// TestCoordinatorThatIsHeardAgainHasNotLapsed, however often it has fallen silent.
func TestCoordinatorThatIsHeardAgainHasNotLapsed(t *testing.T) {
	s := state{cfg: Config{Config: election.Config{Self: 2}, LongTenure: 100}, peers: make([]peer, 3)}
	for s.now = 1000; s.now < 1040; s.now += 5 {
		s.tenureBegins(1, 5, 1000)
		expect.Equalf(t, s.tenures.lapsed, false, "at %d: lapsed", s.now)
		s.now += 5
		s.tenureEnds(1, lapsed)
		expect.Equalf(t, s.tenures.lapsed, true, "at %d, silent: lapsed", s.now)
	}
}

// TestOnlyRepliesOfCoordinatorNameIt: what else the inner election sends keeps its term.
func TestOnlyRepliesOfCoordinatorNameIt(t *testing.T) {
	for role, want := range map[Role]election.Term{Candidate: 3, Holder: 7, Draining: 7} {
		s := state{role: role, coordinator: 1, coordinatorTerm: 7}
		messages := []election.Message{{Kind: election.Reply, Term: 3}, {Kind: election.Election, Term: 3}}
		s.completeAnswers(messages)
		expect.Equalf(t, messages[0].Term, want, "%v: term of a reply", role)
		expect.Equalf(t, messages[1].Term, 3, "%v: term of an election", role)
	}
}
