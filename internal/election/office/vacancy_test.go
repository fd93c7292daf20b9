package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// The clock of the highest process is far behind: it claims terms that were granted
// before, again and again. The next process doesn't wait for it.
func TestClaimOfGrantedTermDoesNotDelayCampaign(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
		for range stagger {
			h.receive(5, election.Beat, 5, election.Hold{})
			h.advance(1)
		}
		if h.countEvents(self, election.Started) != 1 {
			t.Error("got no election after the campaign delay, want one")
		}
	})
}

// The end of the coordinator is proven: a process campaigns without a pre-vote.
// After mere silence it needs the answers of a majority that follows no coordinator.
func TestOnlyUnprovenVacancyNeedsPreVote(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		proven := newFollower(t, mode, nil)
		proven.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
		proven.advance(stagger)
		if proven.countEvents(self, election.Started) != 1 {
			t.Error("got no election after the end of the coordinator, want one")
		}

		silent := newFollower(t, mode, nil)
		silent.advance(suspicionTimeout + stagger)
		if silent.countEvents(self, election.Started) != 0 {
			t.Error("got an election without a pre-vote, want none")
		}
		answer := election.Hold{Held: true}
		silent.probedBy(1, election.None, answer)
		silent.probedBy(2, 5, answer) // it follows another coordinator
		silent.advance(stagger)
		if silent.countEvents(self, election.Started) != 0 {
			t.Error("got an election after two votes of five, want none")
		}
		silent.probedBy(5, election.None, answer)
		silent.advance(stagger)
		if silent.countEvents(self, election.Started) != 1 {
			t.Error("got no election after a successful pre-vote, want one")
		}
	})
}

// probedBy delivers a PROBE of a process that follows a coordinator.
func (h *harness) probedBy(from, follows election.ID, hold election.Hold) {
	h.t.Helper()
	hold.Life, hold.Version = 1, 1
	h.input(self, election.Input{Kind: election.Receive, Message: election.Message{
		Kind: election.Probe, From: from, To: self, Term: 10, Subject: follows, Hold: hold,
	}})
}

// A coordinator that receives no grants any more still reaches the members. They
// don't have to wait for its silence.
func TestLapsedTenureIsAnnounced(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 3, newRoster(t, 1, 1, 2, 3), nil)
		g.advance(heartbeat)
		g.drop = func(m *election.Message) bool { return m.To == 3 && m.Kind == election.Grant }
		for range lease {
			g.advance(1)
			if g.countEvents(3, election.TenureLost) == 1 {
				break
			}
		}
		g.wantFollowed(election.None, 1, 2, 3)
	})
}
