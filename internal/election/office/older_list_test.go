package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// The coordinator has crashed. Process 1 has adopted a list in which 4 replaces it. Process 2
// hasn't received that list yet, so 1 can't grant its claim. But 2 can grant that of 1.
func TestClaimUnderOlderListDoesntBlockOthers(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2, 3)
		second := newRoster(t, 2, 1, 2, 4).Succeed(first, 0)
		g := newGroup(t, mode, 3, first, nil)
		g.advance(heartbeat)
		g.adopt(second, 1)
		g.advance(heartbeat)
		g.crash(3, true)
		if took := g.untilHolder(20 * lease); took > 3*lease {
			t.Errorf("got holder %d after %d ticks, want one within %d", g.holders(), took, 3*lease)
		}
	})
}

// Members 1 and 3 have adopted a list without 2. The pod of 3 is replaced, and the next one begins with the list before.
// With the grant of 3, process 2 would be coordinator under that list, beside one under the new list.
func TestReplacedMemberWithOlderListDoesntGrant(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2, 3)
		second := newRoster(t, 2, 1, 3, 4, 5).Succeed(first, 0)
		const grace = 20 * lease
		for _, tells := range []bool{false, true} {
			h := &harness{&group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}}
			h.start(self, first, func(c *office.Config) { c.ListGrace = grace })
			h.advance(lease / 2)
			if tells {
				h.receive(1, election.Probe, 0, election.Hold{Held: true, RequesterLife: 1, Version: 2, Roster: 2})
			}
			h.advance(lease)
			h.receive(2, election.Beat, 20, election.Hold{})
			if !tells {
				h.wantAnswer(2, election.Grant)
				continue
			}
			h.wantAnswer(2, election.Deny)
			h.advance(grace / 2)
			h.receive(2, election.Beat, 20, election.Hold{})
			h.wantAnswer(2, election.Deny)
			h.adopt(second, self)
			h.receive(4, election.Beat, 30, election.Hold{Version: 2})
			h.wantAnswer(4, election.Grant)
		}
	})
}

// A member that lies about its list delays the grants of a new process, and doesn't prevent them.
func TestWaitForNewerListIsBounded(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := &harness{&group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}}
		h.start(self, newRoster(t, 1, 1, 2, 3), func(c *office.Config) { c.ListGrace = 5 * lease })
		for _, limit := range []election.Tick{5*lease - 1, 5 * lease} {
			for h.now < limit {
				h.receive(1, election.Probe, 0, election.Hold{Held: true, RequesterLife: 1, Roster: 1<<32 - 1})
				h.advance(1)
			}
			h.receive(2, election.Beat, 20, election.Hold{})
			if limit < 5*lease {
				h.wantAnswer(2, election.Deny)
			} else {
				h.wantAnswer(2, election.Grant)
			}
		}
	})
}
