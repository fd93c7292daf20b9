package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// named returns a list of the members of r that names the state directories that their processes have now.
func (g *group) named(version uint32, r *election.Roster) *election.Roster {
	g.t.Helper()
	ring := make([]election.Member, r.Len())
	for i, m := range r.Ring() {
		m.Identity = g.directories[m.ID]
		ring[i] = m
	}
	named, err := election.NewRoster(version, ring)
	must.Succeed(g.t, err)
	return named
}

// newForgetful returns process 3 of 1 to 5, whose state directory isn't the one that list 1 names.
func newForgetful(t *testing.T, mode office.Mode) (*harness, *election.Roster) {
	t.Helper()
	h, roster := newHarness(t, mode, nil), newRoster(t, 1, 1, 2, 3, 4, 5)
	h.loseDirectory(self)
	h.start(self, roster, func(c *office.Config) { c.MemoryLost = false })
	return h, roster
}

// A process whose state directory isn't the one that its list names may have granted and claimed other terms with that.
// So it refuses requests and claims nothing. It says so, and reports no list as adopted.
func TestForgetfulProcessAbstains(t *testing.T) {
	inEachMode(t, func(t *testing.T, mode office.Mode) {
		h, _ := newForgetful(t, mode)
		expect.Equalf(t, h.machines[self].Forgetful(), true, "forgetful")
		h.receive(4, election.Beat, term(10), election.Hold{})
		if mode != office.Available {
			h.wantAnswer(4, election.Deny)
			expect.Equalf(t, h.captured[0].Term, term(10), "refused term, for good")
		}
		h.receive(4, election.Beat, term(10), election.Hold{Held: true})
		h.confirm(4, term(10))
		h.receive(4, election.Beat, term(10), election.Hold{Held: true})
		h.wantFollowed(4, self)
		h.probedBy(1, 4, election.Hold{})
		for _, m := range h.captured {
			if !m.Hold.Ineligible || !m.Hold.Abstains || m.Hold.Version != 0 || m.Hold.Ready {
				t.Errorf("got %s with %+v, want that it declares that it abstains and is ineligible", m.Describe(), m.Hold)
			}
		}
		h.input(self, election.Input{Kind: election.BecomeIneligible})
		h.input(self, election.Input{Kind: election.BecomeEligible})
		h.captured = nil
		for _, id := range []election.ID{5, 4} {
			h.input(self, election.Input{Kind: election.Ended, Peer: id, Life: 1})
		}
		for range 20 {
			h.answered(0, 1, 2)
			h.advance(heartbeat)
		}
		receiveResigned(h, 1, term(12), self, election.Hold{Ready: true})
		h.advance(lease)
		h.wantHolder(election.None)
		expect.Equalf(t, h.countSent(election.Beat), 0, "requests")
		expect.Equalf(t, h.countEvents(self, election.Started), 0, "elections")
		expect.Equalf(t, h.machines[self].Joined(h.now), false, "joined")
	})
}

// A forgetful process votes and leads as soon as a later publication of its list, or a later list, names its directory.
func TestForgetfulProcessVotesAsSoonAsListNamesIt(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for version := uint32(1); version <= 2; version++ {
			h, roster := newForgetful(t, mode)
			h.receive(2, election.Beat, termOf(version, 10), election.Hold{Version: version})
			h.wantAnswer(2, election.Deny)
			h.adopt(roster, self)
			must.Equalf(t, h.machines[self].Forgetful(), true, "forgetful with the same list")
			named := h.named(version, roster)
			if version > 1 {
				named = named.Succeed(roster)
			}
			h.adopt(named, self)
			if version == 1 {
				h.adopt(roster, self) // published before
			}
			expect.Equalf(t, h.machines[self].Forgetful(), false, "forgetful")
			h.receive(2, election.Beat, termOf(version, 10), election.Hold{Version: version})
			h.wantAnswer(2, election.Grant)
			granted := h.captured[len(h.captured)-1].Hold
			if granted.Abstains || granted.Ineligible || granted.Version != version {
				t.Errorf("list %d: got a grant with %+v, want one of a voter that has adopted the list", version, granted)
			}
			h.receive(2, election.Resigned, termOf(version, 10), election.Hold{Held: true, Version: version})
			h.captured = nil
			for _, id := range []election.ID{5, 4} {
				h.input(self, election.Input{Kind: election.Ended, Peer: id, Life: 1})
			}
			for range 10 {
				h.answered(0, 1, 2)
				h.advance(heartbeat)
			}
			if h.countSent(election.Beat) == 0 {
				t.Errorf("list %d: got no claim after the processes of higher rank have ended", version)
			}
		}
	})
}

// A member has lost its state directory. Under the next list it votes at once: the coordinator keeps its office with
// the grant of that member alone.
func TestReplacedMemberVotesAtOnce(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode}
		before := newRoster(t, 1, 1, 2, 3)
		g.startAgreed(2, before)
		g.advance(lease)
		g.crash(3, true)
		g.loseDirectory(3)
		forgets := func(c *office.Config) { c.MemoryLost = false }
		g.start(3, before, forgets)
		g.advance(lease)
		expect.Equalf(t, g.machines[3].Forgetful(), true, "forgetful under the previous list")
		g.wantFollowed(2, 3)
		g.adopt(g.named(2, before).Succeed(before), 2, 1, 3)
		g.advance(heartbeat)
		g.crash(1, true)
		g.advance(3 * lease)
		g.wantHolder(2)
		expect.Equalf(t, g.countEvents(2, election.TenureLost), 0, "lost tenures")
		g.crash(2, false)
		g.start(1, g.named(2, before).Succeed(before), nil)
		g.advance(4 * lease)
		g.wantHolder(3)
	})
}

// A list names another state directory than that of the coordinator, which hands over.
func TestReplacedCoordinatorHandsOver(t *testing.T) {
	inEachMode(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode}
		roster := newRoster(t, 1, 1, 2, 3)
		g.startAgreed(3, roster)
		g.advance(lease)
		g.loseDirectory(3)
		g.adopt(g.named(2, roster).Succeed(roster), 3, 1, 2)
		g.advance(heartbeat)
		expect.Equalf(t, g.countEvents(3, election.OfficeResigned), 1, "resignations")
		g.advance(lease)
		g.wantHolder(2)
	})
}

// A process doesn't count on members that abstain: it campaigns when a majority of the voters answers, and asks none of
// the others which term it could grant.
func TestAbstainingMemberDoesntCount(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, abstains := range []bool{true, false} {
			h := newFollower(t, mode, nil)
			h.advance(suspicionTimeout)
			for range 5 {
				h.probedBy(1, election.None, election.Hold{Held: true})
				h.probedBy(2, election.None, election.Hold{Held: true, Abstains: abstains})
				h.advance(heartbeat)
			}
			expect.Equalf(t, h.countEvents(self, election.Started) > 0, !abstains, "abstains %t: campaigns", abstains)
			h.probedBy(1, election.None, election.Hold{Held: true, HighestGranted: term(50)})
			h.probedBy(5, election.None, election.Hold{Held: true, HighestGranted: term(60)})
			h.captured = nil
			h.advance(2 * heartbeat)
			expect.Equalf(t, h.countEvents(self, election.Started) > 0, true, "abstains %t: campaigns with one more", abstains)
			for _, m := range h.captured {
				if abstains && m.Kind == election.Election {
					expect.Equalf(t, m.Term, term(61), "term of the election, which three voters can grant")
				}
			}
		}
	})
}

// The pre-vote needs a majority of the previous list, too, for which a replaced member doesn't count. Nor does what
// that reports as its highest term.
func TestReplacedMemberDoesntCountForPreVote(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, replaced := range []bool{true, false} {
			h := newHarness(t, mode, nil)
			h.loseDirectory(1)
			before := h.named(1, newRoster(t, 1, 1, 2, self))
			if replaced {
				h.loseDirectory(1)
			}
			h.start(self, h.named(2, before).Succeed(before), func(c *office.Config) { c.MemoryLost = false })
			answers := func(from ...election.ID) {
				for range 10 {
					for _, id := range from {
						h.probedBy(id, election.None, election.Hold{Held: true, HighestGranted: termOf(2, election.Term(40*id))})
					}
					h.advance(heartbeat)
				}
			}
			answers(1)
			expect.Equalf(t, h.countEvents(self, election.Started) > 0, !replaced, "replaced %t: campaigns", replaced)
			h.captured = nil
			answers(1, 2)
			want := termOf(2, 41)
			if replaced {
				want = termOf(2, 81)
			}
			if claimed := h.claimed(); len(claimed) == 0 || claimed[0] < want {
				t.Errorf("replaced %t: got claims of terms %d, want %d", replaced, claimed, want)
			}
		}
	})
}
