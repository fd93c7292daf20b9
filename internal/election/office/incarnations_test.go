package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// newGroupWithSlowClock returns a group of five in which the clock of process 5
// is behind, and process 4 is coordinator in the last term of epoch 60. When 4 ends, 1
// starts an election in epoch 61, which 5 wins, in a term that its own clock
// hasn't reached. Its next incarnation may be in that term again.
func newGroupWithSlowClock(t *testing.T, mode office.Mode) (*group, *election.Roster) {
	t.Helper()
	roster := newRoster(t, 1, 1, 2, 3, 4, 5)
	g := &group{t: t, mode: mode}
	g.configure = func(c *office.Config) {
		c.Clock = election.TermClock{AtBoot: 100, Boot: g.now, TicksPerEpoch: 1000}
		if c.Self == 5 {
			c.Clock.AtBoot = 60
		}
	}
	for _, m := range roster.Ring() {
		g.start(m.ID, roster, func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, election.Epoch(60).Last(), 4 })
	}
	g.advance(heartbeat)
	g.wantHolder(4)
	return g, roster
}

// electInEpoch61 ends process 4 and lets 1 start the election in epoch 61. It
// returns the ELECTION from 1 to 5.
func electInEpoch61(g *group) election.Message {
	g.t.Helper()
	var asked election.Message
	before := g.drop
	g.drop = func(m *election.Message) bool {
		if m.Kind == election.Election && m.From == 1 && m.To == 5 {
			asked = *m
		}
		return before != nil && before(m) || m.Kind == election.Election && m.To < 5
	}
	g.crash(4, true)
	g.input(1, election.Input{Kind: election.Campaign})
	g.drop = before
	if asked.Term != election.Epoch(61).First() {
		g.t.Fatalf("got %v from process 1, want an ELECTION in epoch 61", asked)
	}
	return asked
}

// GRANTs to an earlier incarnation arrive when the new one claims the same
// term. In Majority the members have released them by then.
func TestGrantToEarlierIncarnationDoesntCount(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g, roster := newGroupWithSlowClock(t, mode)
		g.capture = func(m *election.Message) bool { return m.To == 5 && m.Kind == election.Grant }
		asked := electInEpoch61(g)
		for n := 0; len(g.captured) < 3 && n < 200; n++ {
			g.advance(1)
		}
		g.capture = nil
		g.drop = func(m *election.Message) bool { return crosses(m, 5) }
		g.crash(5, true)
		g.start(5, roster, nil)
		g.deliver(asked)
		if got := g.machines[5].Status(); !got.Electing {
			t.Fatalf("got %+v, want a claim of the new incarnation of process 5", got)
		}
		g.input(3, election.Input{Kind: election.Campaign})
		g.advance(4) // so much do 3, 2 and 1 need
		for _, m := range g.captured {
			g.deliver(m)
		}
		g.advance(lease)
		g.input(3, election.Input{Kind: election.Campaign})
		g.advance(2 * lease)
		g.wantHolder(3)
	})
}

// A process claims term 61, abandons the claim and ends. A member that didn't
// receive that claim grants the same term to its new incarnation. Then the
// RESIGNED of the earlier incarnation arrives.
func TestResignationOfEarlierIncarnationReleasesNothing(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 2, newRoster(t, 1, 1, 2, 3), nil)
		g.machines[2], g.machines[3] = nil, nil
		g.advance(2 * lease)
		say := func(from election.ID, kind election.Kind, term election.Term, life uint32) {
			g.inFlight = nil
			g.step(1, election.Input{Kind: election.Receive, Message: election.Message{
				Kind: kind, From: from, To: 1, Term: term, Hold: election.Hold{Life: life, Sent: g.now, Version: 1},
			}})
		}
		granted := func() bool {
			for _, m := range g.inFlight {
				if m.Kind == election.Grant {
					return true
				}
			}
			return false
		}
		say(3, election.Beat, 61, 2)
		if !granted() {
			t.Fatal("got no grant of the claim, want one")
		}
		say(3, election.Resigned, 61, 1)
		if say(2, election.Beat, 62, 1); granted() {
			t.Error("got a grant for another process while the first is in force, want none")
		}
		if say(3, election.Beat, 61, 2); !granted() {
			t.Error("got no renewal for the new incarnation, want one")
		}
		say(3, election.Resigned, 61, 2)
		if say(3, election.Beat, 61, 2); granted() {
			t.Error("got a grant of a resigned term, want none")
		}
		if say(2, election.Beat, 62, 1); !granted() {
			t.Error("got no grant after the resignation, want one")
		}
	})
}

// The report that an earlier incarnation has ended arrives late. The grant to
// the present one stays in force.
func TestEndOfEarlierIncarnationReleasesNothing(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(3 * lease)
		h.receive(5, election.Beat, 30, election.Hold{Life: 2})
		h.wantAnswer(5, election.Grant)
		h.input(self, election.Input{Kind: election.Ended, Peer: 5, Life: 1})
		h.receive(4, election.Beat, 31, election.Hold{})
		h.wantAnswer(4, election.Deny)
	})
}

// A pending request was sent by an incarnation that has ended since. The grant
// names that incarnation.
func TestLateGrantNamesRequestingIncarnation(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(3 * lease)
		h.receive(4, election.Beat, 30, election.Hold{})
		h.wantAnswer(4, election.Grant)
		h.receive(5, election.Beat, 31, election.Hold{Life: 1})
		h.wantAnswer(5, election.Deny)
		h.receive(5, election.Probe, 0, election.Hold{Life: 2})
		h.captured = nil
		h.advance(2 * lease)
		for _, m := range h.captured {
			if m.Kind == election.Grant && m.To == 5 {
				expect.Equalf(t, m.Hold.RequesterLife, 1, "GRANT for incarnation")
				return
			}
		}
		t.Error("got no grant of the pending request, want one")
	})
}
