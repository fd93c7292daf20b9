package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// newGroupWithSlowClock returns a group of five in which the clock of process 5 is behind, and process 4 is coordinator
// in the last term of epoch 60. When 4 ends, 1 starts an election in epoch 61, which 5 wins, in a term that its own
// clock hasn't reached. Its next incarnation may be in that term again.
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
		g.start(m.ID, roster,
			func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, election.Epoch(60).Last(), 4 })
	}
	g.advance(heartbeat)
	g.wantHolder(4)
	return g, roster
}

// electInEpoch61 ends process 4 and lets 1 start the election in epoch 61. It returns the ELECTION from 1 to 5.
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

// A process claims term 61, abandons the claim and ends. A member that didn't receive that claim grants the same term
// to its new incarnation. Then the RESIGNED of the earlier incarnation arrives.
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

// The report that an earlier incarnation has ended arrives late. The grant to the present one stays in force.
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

// A pending request was sent by an incarnation that has ended since. The grant names that incarnation.
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

// TestSuccessorIsFollowedWhenFormerCoordinatorHasEnded: the coordinator has ended. The BEAT
// of its successor arrives before this process notices that.
func TestSuccessorIsFollowedWhenFormerCoordinatorHasEnded(t *testing.T) {
	for _, mode := range []office.Mode{office.Available, office.Majority} {
		t.Run(mode.String(), func(t *testing.T) {
			h := newFollower(t, mode, nil)
			h.receive(5, election.Beat, 11, election.Hold{})
			h.receive(5, election.Beat, 11, election.Hold{Held: true})
			h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
			if got := h.machines[self].Status(); got.Coordinator != 5 || got.Term != 11 {
				t.Errorf("got coordinator %d in term %d, want 5 in term 11", got.Coordinator, got.Term)
			}
		})
	}
}

// A process follows a false coordinator in a high term, which then falls silent. It follows the
// true one, whose term is lower, as soon as that answers a probe.
func TestFalseTermIsForgotten(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(2 * lease)
		h.receive(5, election.Beat, 50, election.Hold{Held: true})
		h.wantFollowed(5, self)
		h.advance(2 * lease)
		h.receive(4, election.Beat, 30, election.Hold{Held: true})
		h.wantFollowed(election.None, self)
		h.input(self, election.Input{Kind: election.Receive, Message: election.Message{
			Kind: election.Probe, From: 4, To: self, Term: 30, Subject: 4,
			Hold: election.Hold{Life: 1, Held: true, Sent: h.now, RequesterLife: 1},
		}})
		h.receive(4, election.Beat, 30, election.Hold{Held: true})
		h.wantFollowed(4, self)
	})
}

// confirm delivers PROBEs of processes that follow a coordinator, by default of 1 and 2,
// which are a majority of five together with the coordinator.
func (h *harness) confirm(coordinator election.ID, term election.Term, by ...election.ID) {
	h.t.Helper()
	if len(by) == 0 {
		by = []election.ID{1, 2}
	}
	for _, from := range by {
		h.input(self, election.Input{Kind: election.Receive, Message: election.Message{
			Kind: election.Probe, From: from, To: self, Term: term, Subject: coordinator, Hold: election.Hold{Life: 1},
		}})
	}
}

// A process that restarted grants nothing for a lease. It believes that another one holds
// the office when a majority says so.
func TestCoordinatorIsFollowedWhenMajorityConfirmsIt(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		restart := func() *harness {
			h := newFollower(t, mode, nil)
			h.start(self, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
			h.receive(5, election.Beat, 11, election.Hold{Held: true})
			h.wantFollowed(election.None, self)
			if n := h.countSent(election.Probe); n != 4 {
				t.Errorf("got %d probes, want one to each other process", n)
			}
			return h
		}
		asked := restart()
		asked.receive(5, election.Beat, 11, election.Hold{Held: true})
		expect.Equalf(t, asked.countSent(election.Probe), 0, "probes after the next BEAT")
		asked.confirm(5, 10)
		asked.confirm(4, 11)
		asked.confirm(5, 11, 5, 1)
		asked.wantFollowed(election.None, self)
		asked.confirm(5, 11, 2)
		asked.wantFollowed(5, self)

		resigned := restart()
		resigned.receive(5, election.Resigned, 11, election.Hold{})
		resigned.confirm(5, 11)
		resigned.wantFollowed(election.None, self)

		late := restart()
		late.advance(heartbeat)
		late.confirm(5, 11)
		late.wantFollowed(election.None, self)
		late.receive(5, election.Beat, 11, election.Hold{Held: true})
		late.wantFollowed(5, self)

		alone := restart()
		alone.advance(lease)
		alone.receive(5, election.Beat, 11, election.Hold{Held: true})
		alone.wantFollowed(5, self)
	})
}

// A process recovers from the answers to the probes that it sent after the lease of its
// earlier grants. Other answers that arrive later may report less, and must not count: a GRANT
// doesn't report the granted term itself, and here it is that of an earlier incarnation.
func TestOtherAnswersDontLowerRecoveredBound(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		roster := newRoster(t, 1, 1, 2, self)
		g := &group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}
		g.configure = func(c *office.Config) {
			c.Clock = election.TermClock{AtBoot: 1000, Boot: g.now, TicksPerEpoch: heartbeat}
		}
		g.start(self, roster, nil)
		g.crash(self, true)
		g.start(self, roster, nil)
		h := &harness{g}
		sentTooEarly := g.now
		g.advance(2 * lease)
		answer := func(from election.ID, kind election.Kind, life uint32, sent election.Tick, highest election.Term) {
			h.receive(from, kind, 60, election.Hold{
				Held: kind == election.Probe, Sent: sent, RequesterLife: life, Roster: 1, HighestGranted: highest,
			})
		}
		answer(1, election.Probe, 2, g.now, 50)
		answer(1, election.Grant, 1, g.now, 2)
		answer(1, election.Grant, 2, g.now, 2)
		answer(1, election.Probe, 1, g.now, 2)
		answer(1, election.Probe, 2, sentTooEarly, 2)
		answer(2, election.Probe, 2, g.now, 2)
		h.wantBound(50)
	})
}

// wantBound checks what the process answers to a probe: a bound on the terms that it has granted.
func (h *harness) wantBound(want election.Term) {
	h.t.Helper()
	h.captured = nil
	h.probedBy(1, election.None, election.Hold{})
	for _, m := range h.captured {
		if m.Kind == election.Probe && m.Hold.Held {
			if got := m.Hold.HighestGranted; got != want {
				h.t.Errorf("got %d as the highest term that was granted, want %d", got, want)
			}
			return
		}
	}
	h.t.Error("got no answer to a probe")
}

// Two conditions for an answer to count for the recovery. The member had granted nothing when it sent an
// answer before the end of the wait, but may have granted later. And with another list, a tenure may need no
// majority that includes the member.
func TestOnlyAnswersAfterWaitUnderSameListCountForRecovery(t *testing.T) {
	reading := election.Epoch(1000).Last() // the bound until the process has recovered
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, test := range []struct {
			name string
			sent election.Tick // after the end of the wait
			list uint32
			want election.Term
		}{
			{"probe sent before the end of the wait", -1, 1, reading},
			{"another list", 0, 2, reading},
			{"both conditions met", 0, 1, 50},
		} {
			t.Run(test.name, func(t *testing.T) {
				h := &harness{&group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}}
				h.start(self, newRoster(t, 1, 1, 2, self), func(c *office.Config) {
					c.Clock = election.TermClock{AtBoot: 1000, TicksPerEpoch: heartbeat}
				})
				h.advance(lease + 1)
				for _, from := range []election.ID{1, 2} {
					h.receive(from, election.Probe, 60, election.Hold{
						Held: true, Sent: lease + test.sent, RequesterLife: 1, Roster: test.list, HighestGranted: 50,
					})
				}
				h.wantBound(test.want)
			})
		}
	})
}
