package office_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// A member grants an acquisition only in a term that is on its disk. Renewals continue a tenure that others have
// granted, so they don't wait.
func TestAcquisitionWaitsForReservation(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.stuck.Add(self)
		h.advance(3 * lease)
		h.receive(4, election.Beat, term(70), election.Hold{Held: true})
		h.wantAnswer(4, election.Grant)
		h.advance(2 * lease)
		h.receive(5, election.Beat, term(64), election.Hold{})
		h.wantAnswer(5, election.Grant)
		h.receive(5, election.Resigned, term(64), election.Hold{Held: true})
		h.receive(5, election.Beat, term(65), election.Hold{})
		h.wantAnswer(5, election.Deny)
		h.input(self, election.Input{Kind: election.Reserved, Term: term(65)})
		h.receive(5, election.Beat, term(65), election.Hold{})
		h.wantAnswer(5, election.Grant)
	})
}

// A member that hasn't received the newest list yet grants a claim under that list as soon as the term is on its disk.
func TestClaimUnderNewerListIsGrantedWhenReserved(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.stuck.Add(self)
		h.advance(3 * lease)
		h.receive(5, election.Beat, termOf(3, 1), election.Hold{Version: 3})
		h.wantAnswer(5, election.Deny)
		must.Equalf(t, h.machines[self].Wanted(), termOf(3, 1)+election.Block, "wanted reservation")
		h.captured = nil
		h.input(self, election.Input{Kind: election.Reserved, Term: termOf(3, 1)})
		h.wantAnswer(5, election.Grant)
		expect.Equalf(t, h.machines[self].UsedTerm(), termOf(3, 1), "used term, above which the next list must be")
	})
}

// Claims in high terms add a block in a lease, and renewals or the reports of one member add nothing. If a majority has
// used as many terms, the reservation follows.
func TestReservationFollowsMajority(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, test := range []struct {
			reports [3]election.Term
			want    election.Term
		}{
			{[3]election.Term{10, 10, 60_000}, 128},
			{[3]election.Term{10, 100, 60_000}, 164},
			{[3]election.Term{900, 900, 60_000}, 964},
			{[3]election.Term{65_530, 65_530, 65_530}, 65_535},
			{[3]election.Term{70_000, 70_000, 70_000}, 128}, // of a newer list, which will have a block of its own
		} {
			h := newFollower(t, mode, nil)
			h.advance(3 * lease)
			for _, held := range []bool{false, true} {
				h.receive(5, election.Beat, election.LastTerm(1), election.Hold{Held: held})
				h.receive(5, election.Resigned, election.LastTerm(1), election.Hold{Held: !held})
			}
			h.receive(2, election.Beat, term(200), election.Hold{})
			h.wantAnswer(2, election.Deny)
			must.Equalf(t, h.machines[self].Wanted(), term(128), "reservation after false messages of one member")
			for i, from := range []election.ID{1, 2, 5} {
				h.probedBy(from, election.None, election.Hold{Held: true, HighestGranted: term(test.reports[i])})
			}
			expect.Equalf(t, h.machines[self].Wanted(), term(test.want), "others report %d: reservation", test.reports)
		}
	})
}

// The disks store nothing while there is no coordinator: elections never wait for them.
func TestElectionsDontWaitForDisks(t *testing.T) {
	inEachMode(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 3, newRoster(t, 1, 1, 2, 3), nil)
		g.advance(heartbeat)
		for n := range 300 {
			g.stuck = election.IDs{1, 2, 3}
			g.input(g.holders()[0], election.Input{Kind: election.StepDown})
			if took := g.untilHolder(lease); took > 1 {
				t.Fatalf("hand-over %d took %d ticks, want at most one", n, took)
			}
			g.stuck = nil
			g.advance(lease + suspicionTimeout + 1) // until the former coordinator is ready again
		}
		expect.AtLeastf(t, g.machines[3].Status().Term, term(300), "term after 300 hand-overs")
	})
}

// A process whose machine has restarted doesn't know what it granted. It grants no term that it had reserved, nor any
// for the longest lease.
func TestRebootedMemberGrantsNoTermThatWasReserved(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newHarness(t, mode, nil)
		h.reserved[self] = term(64)
		h.stuck.Add(self)
		h.start(self, newRoster(t, 1, 1, 2, self), func(c *office.Config) { c.LongestEarlierLease = 3 * lease })
		h.input(self, election.Input{Kind: election.Reserved, Term: term(65)})
		h.advance(3*lease - 1)
		h.receive(1, election.Beat, term(64), election.Hold{})
		h.wantAnswer(1, election.Deny)
		if got := h.captured[len(h.captured)-1]; got.Term != term(64) || got.Hold.HighestGranted != term(64) {
			t.Errorf("got %v, want that terms up to 64 may have been granted", got)
		}
		h.receive(2, election.Beat, term(65), election.Hold{})
		h.wantAnswer(2, election.Deny)
		h.advance(1)
		h.wantAnswer(2, election.Grant)
	})
}

// Machines restart at once, and their disks have different reservations. The group elects in a term that a majority can
// grant.
func TestRebootedMembersElect(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, reserved := range [][]election.Term{{64, 640, 60_000}, {60_000, 640, 64}, {64, 64, 64}, {640, 64, 64}} {
			g := newGroupOfSeconds(t, mode)
			roster := newRoster(t, 1, 1, 2, 3)
			for i, m := range roster.Ring() {
				g.reserved[m.ID] = term(reserved[i])
			}
			for _, m := range roster.Ring() {
				g.start(m.ID, roster, nil)
			}
			g.advance(3 * second)
			g.wantHolder(3)
			slices.Sort(reserved)
			if got, least := g.machines[3].Status().Term, term(reserved[1]); got <= least || got > least+3 {
				t.Errorf("reserved %d: got a tenure in term %d, want one just above %d", reserved, got, least)
			}
		}
	})
}

// A member whose machine has restarted, again and again, takes over like any other one, also as one of two that are
// left.
func TestRebootedMemberTakesOver(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, reboots := range []int{1, 5} {
			for _, crashes := range []bool{false, true} {
				g := newGroupOfSeconds(t, mode)
				roster := newRoster(t, 1, 1, 2, 3)
				g.startAgreed(2, roster)
				g.advance(second)
				for range reboots {
					g.crash(3, true)
					g.start(3, roster, nil)
					g.advance(2 * second)
				}
				g.wantHolder(2)
				limit := election.Tick(1)
				if crashes {
					g.crash(2, true)
					limit = second
				} else {
					g.input(2, election.Input{Kind: election.StepDown})
				}
				expect.AtMostf(t, g.untilHolder(10*second), limit, "%d reboots, crash %t: time until the next coordinator",
					reboots, crashes)
			}
		}
	})
}

// In Available mode, a process that doesn't remember its claims claims no term that it had reserved, and a higher one
// only when that is on its disk.
func TestAvailableClaimWaitsForReservation(t *testing.T) {
	g := &group{t: t, mode: office.Available}
	roster := newRoster(t, 1, 1, 2, 3)
	for _, m := range roster.Ring() {
		g.reserved[m.ID] = term(64)
		g.stuck.Add(m.ID)
		g.start(m.ID, roster, nil)
	}
	g.advance(10 * lease)
	g.wantHolder(election.None)
	g.wantFollowed(election.None, 1, 2)
	expect.AtLeastf(t, g.machines[3].Wanted(), term(64)+1, "reservation wanted")
	g.input(3, election.Input{Kind: election.Reserved, Term: g.machines[3].Wanted()})
	g.advance(1)
	g.wantHolder(3)
	g.wantFollowed(3, 1, 2)
	expect.Equalf(t, g.machines[1].UsedTerm(), g.machines[3].Status().Term, "used term, as a follower knows it")
}
