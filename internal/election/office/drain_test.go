package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// longDrain is many leases, as drains may be in production.
const longDrain = 20 * lease

func inEachMode(t *testing.T, test func(*testing.T, office.Mode)) {
	t.Helper()
	t.Run(office.Available.String(), func(t *testing.T) { test(t, office.Available) })
	inGrantModes(t, test)
}

// demote returns a list of the same members in which one is an observer.
func demote(t *testing.T, before *election.Roster, observer election.ID) *election.Roster {
	t.Helper()
	var ring []election.Member
	for _, m := range before.Ring() {
		if m.ID == observer {
			m.Priority = 0
		}
		ring = append(ring, m)
	}
	r, err := election.NewRoster(before.Version+1, ring)
	must.Succeed(t, err)
	return r.Succeed(before)
}

// wantResigned checks that a process has resigned once, and in favor of which successor.
func (g *group) wantResigned(id, successor election.ID) {
	g.t.Helper()
	var successors []election.ID
	for _, e := range g.events {
		if e.id == id && e.event.Kind == election.OfficeResigned {
			successors = append(successors, e.event.Peer)
		}
	}
	expect.EqualSlicesf(g.t, successors, []election.ID{successor}, "successors that process %d names", id)
}

// A list removes or demotes the coordinator 3. It remains coordinator until its application has
// stopped, in whatever order the members adopt the list, and if some of them restart.
func TestRemovedCoordinatorHasItsDrainTime(t *testing.T) {
	first := newRoster(t, 1, 1, 2, 3)
	removed := newRoster(t, 2, 1, 2, 4).Succeed(first)
	for _, test := range []struct {
		name               string
		list               *election.Roster
		adopting, restarts []election.ID
		successor          election.ID
	}{
		{name: "it adopts first", list: removed, adopting: []election.ID{3, 1, 2}, successor: 4},
		{name: "it adopts last", list: removed, adopting: []election.ID{1, 2, 3}, successor: 4},
		{name: "most members are new", list: newRoster(t, 2, 1, 4,
			5).Succeed(first), adopting: []election.ID{3, 1, 2}, successor: 5},
		{name: "demoted", list: demote(t, first,
			3), adopting: []election.ID{1, 3, 2}, restarts: []election.ID{2, 1}, successor: 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			inEachMode(t, func(t *testing.T, mode office.Mode) {
				g := &group{t: t, mode: mode, appsKeepRunning: true}
				g.configure = func(c *office.Config) { c.DrainTimeout = longDrain }
				g.startAgreed(3, first)
				g.advance(2 * longDrain) // the time of the drain begins with the list
				startOthers := func() {
					for _, m := range test.list.Ring() {
						if !first.Has(m.ID) {
							g.start(m.ID, test.list, func(c *office.Config) { c.MemoryLost = false }) // it grants at once
						}
					}
				}
				if mode != office.Available { // there, they would elect one of them at once
					startOthers()
				}
				for _, id := range test.adopting {
					g.adopt(test.list, id)
					g.advance(heartbeat / 2)
				}
				if mode == office.Available {
					startOthers()
				}
				g.advance(2 * lease)
				g.adopt(test.list.Succeed(first, 1, 2, 3), 1, 2, 3) // it has settled
				for _, id := range test.restarts {
					g.crash(id, true)
					g.start(id, test.list, nil)
					g.advance(3 * lease)
				}
				g.advance(longDrain / 2)
				g.wantHolder(3)
				g.input(3, election.Input{Kind: election.Stopped, Term: g.machines[3].Status().Term})
				expect.Equalf(t, g.countEvents(3, election.StopRequested), 1, "requests to stop")
				g.wantResigned(3, test.successor)
				g.advance(1)
				g.wantHolder(test.successor)
			})
		})
	}
}

// The other members bound the drain time. Perhaps the coordinator is compromised, and was demoted for that reason.
func TestDemotedCoordinatorThatDoesntStopIsCutOff(t *testing.T) {
	inEachMode(t, func(t *testing.T, mode office.Mode) {
		roster := newRoster(t, 1, 1, 2, 3, 4, 5)
		h := newFollower(t, mode, nil)
		h.adopt(demote(t, roster, 4), self)
		for h.now < drainTimeout+2*lease {
			h.advance(5)
			h.receive(4, election.Beat, term(10), election.Hold{Version: 2, Held: true, Sent: h.now})
			if h.now < drainTimeout {
				h.wantAnswer(4, election.Grant)
			}
		}
		h.wantAnswer(4, election.NoKind)
		if got := h.machines[self].Status().Coordinator; got == 4 {
			t.Error("got a follower of the demoted coordinator, want none")
		}
	})
}

// A demoted process that isn't coordinator can't become it by saying that it is.
func TestDemotedProcessIsntBelieved(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.adopt(demote(t, newRoster(t, 1, 1, 2, 3, 4, 5), 5), self)
		h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
		h.advance(lease)
		for _, held := range []bool{false, true} {
			h.receive(5, election.Beat, term(30), election.Hold{Version: 2, Held: held, Sent: h.now})
			h.wantAnswer(5, election.NoKind)
		}
		h.wantFollowed(election.None, self)
	})
}

// The successor of a hand-over crashes while the application stops. The next process that is ready takes its place.
func TestSuccessorIsChosenWhenApplicationHasStopped(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode, appsKeepRunning: true}
		g.configure = func(c *office.Config) { c.DrainTimeout = longDrain }
		g.startAgreed(3, newRoster(t, 1, 1, 2, 3, 4, 5))
		g.advance(heartbeat)
		g.input(3, election.Input{Kind: election.StepDown, Peer: 5})
		g.advance(2 * lease)
		g.crash(5, true)
		g.input(3, election.Input{Kind: election.Stopped, Term: g.machines[3].Status().Term})
		g.wantResigned(3, 4)
		g.advance(1)
		g.wantHolder(4)
	})
}

// Followers know that the coordinator hands over before it has, also if a BEAT from before arrives late.
func TestHandOverIsAnnounced(t *testing.T) {
	inEachMode(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode, appsKeepRunning: true}
		g.startAgreed(3, newRoster(t, 1, 1, 2, 3))
		want := func(want ...bool) {
			t.Helper()
			for i, want := range want {
				expect.Equalf(t, g.machines[election.ID(i+1)].Status().HandsOver, want, "process %d sees a hand-over", i+1)
			}
		}
		g.capture = func(m *election.Message) bool { return m.Kind == election.Beat && m.To == 1 }
		g.advance(heartbeat)
		want(false, false, false)
		g.capture = nil
		g.advance(1)
		g.input(3, election.Input{Kind: election.StepDown})
		g.deliver(g.captured[0])
		want(true, true, false)
		g.crash(3, true)
		want(false, false)
		g.advance(2 * lease)
		g.wantHolder(2)
		want(false, false)
	})
}

// A hand-over is reported as a lapse if the grants expire before the application has stopped.
func TestLapseDuringHandOverIsReported(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, isolated := range []bool{false, true} {
			g := &group{t: t, mode: mode, appsKeepRunning: true}
			g.configure = func(c *office.Config) { c.DrainTimeout = longDrain }
			g.startAgreed(3, newRoster(t, 1, 1, 2, 3))
			g.advance(2 * heartbeat)
			g.input(3, election.Input{Kind: election.StepDown})
			g.drop = func(m *election.Message) bool { return isolated && m.Kind == election.Grant && m.To == 3 }
			g.capture = func(m *election.Message) bool { return m.Kind == election.Resigned && m.From == 3 }
			if !isolated {
				g.input(3, election.Input{Kind: election.Stopped, Term: g.machines[3].Status().Term})
			}
			g.advance(2 * lease)
			if len(g.captured) == 0 {
				t.Fatalf("isolated %t: got no RESIGNED of the coordinator, want one", isolated)
			}
			expect.Equalf(t, !g.captured[0].Hold.Ready, isolated,
				"isolated %t: RESIGNED that reports a lapse", isolated)
		}
	})
}
