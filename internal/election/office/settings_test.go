package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// reconfigure changes the settings of a process.
func (g *group) reconfigure(id election.ID, change func(*office.Settings)) {
	g.t.Helper()
	s := office.Settings{
		Mode: g.mode, Lease: lease, Heartbeat: heartbeat, SuspicionTimeout: suspicionTimeout, Stagger: stagger,
		Policy: office.NeverPreempt, StablePeriod: stablePeriod, DrainTimeout: drainTimeout,
	}
	change(&s)
	must.Succeed(g.t, g.machines[id].Reconfigure(s, g.now))
}

func (h *harness) wantGrantedLease(to election.ID, want election.Tick) {
	h.t.Helper()
	got := election.Tick(-1)
	for _, m := range h.captured {
		if m.To == to && m.Kind == election.Grant {
			got = m.Hold.Lease
		}
	}
	expect.Equalf(h.t, got, want, "at %d: lease of the grant", h.now)
}

// TestMemberGrantsForItsOwnLeaseAtMost: after a restart it waits for no longer lease.
func TestMemberGrantsForItsOwnLeaseAtMost(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(3 * lease)
		for requested, want := range map[election.Tick]election.Tick{
			lease + 1: lease, election.Never: lease, lease - 1: lease - 1, 0: lease,
		} {
			h.receive(5, election.Beat, term(30), election.Hold{Lease: requested})
			h.wantGrantedLease(5, want)
		}
		h.now += lease - 1
		h.receive(2, election.Beat, term(31), election.Hold{})
		h.wantAnswer(2, election.Deny)
		h.now++
		h.receive(2, election.Beat, term(32), election.Hold{})
		h.wantAnswer(2, election.Grant)
	})
}

// TestHolderCountsItsOwnLeaseAtMost: a grant for a longer lease may be the answer to a
// request before the lease became shorter.
func TestHolderCountsItsOwnLeaseAtMost(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newCandidate(t, mode, nil)
		for _, id := range []election.ID{1, 2} {
			h.receive(id, election.Grant, term(20), election.Hold{Sent: h.now, Lease: election.Never})
		}
		h.wantHolder(self)
		if got, want := h.machines[self].Status().Until, h.now+lease-lease/16-1; got > want {
			t.Errorf("got a tenure until %d, want until %d at the latest", got, want)
		}
	})
}

// TestDeferredRequestIsGrantedForLeaseInForce: the lease became shorter while the request waited.
func TestDeferredRequestIsGrantedForLeaseInForce(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(3 * lease)
		h.receive(5, election.Beat, term(30), election.Hold{Lease: lease})
		h.receive(2, election.Beat, term(31), election.Hold{Lease: lease})
		h.wantAnswer(2, election.Deny)
		h.reconfigure(self, func(s *office.Settings) { s.Lease, s.Heartbeat = lease/2, heartbeat/2 })
		h.captured = nil
		h.advance(lease)
		h.wantGrantedLease(2, lease/2)
	})
}

// TestHeartbeatsFollowShorterGrants: the holder has a lease of ten times that of the
// members, which would expire between two of its heartbeats.
func TestHeartbeatsFollowShorterGrants(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 5, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
		for _, factor := range []election.Tick{2, 5, 8} {
			g.reconfigure(5, func(s *office.Settings) {
				s.Lease, s.Heartbeat, s.SuspicionTimeout = factor*lease, factor*heartbeat, factor*suspicionTimeout
			})
			g.advance(20 * lease)
			g.wantHolder(5)
			must.Equalf(t, len(g.tokens), 1, "with %d times the lease: tenures", factor)
		}
	})
}

// TestSettingsSpreadWithoutElection: the members get other settings one after the other,
// in any order, at most a heartbeat apart.
func TestSettingsSpreadWithoutElection(t *testing.T) {
	orders := map[string][]election.ID{"holder first": {5, 4, 3, 2, 1}, "holder last": {1, 2, 3, 4, 5}}
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for name, order := range orders {
			for _, half := range []election.Tick{1, 3, 4, 16} { // half the former timing, one and a half, twice, eight times
				g := newGroup(t, mode, 5, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
				g.advance(heartbeat / 2)
				for _, id := range order {
					g.reconfigure(id, func(s *office.Settings) {
						s.Lease, s.Heartbeat, s.SuspicionTimeout = half*lease/2, half*heartbeat/2, half*suspicionTimeout/2
					})
					g.advance(heartbeat / 5)
				}
				g.advance(40 * lease)
				g.wantHolder(5)
				expect.Lenf(t, g.tokens, 1, "%s, %d half leases: tenures (the first one to continue)", name, half)
				g.crash(5, true)
				g.advance(40 * lease)
				g.wantHolder(4)
			}
		}
	})
}

// TestPolicyChangesWithoutElection: a higher process takes over as soon as the policy allows it.
func TestPolicyChangesWithoutElection(t *testing.T) {
	g := newGroup(t, office.Majority, 3, newRoster(t, 1, 1, 2, 3, 4), nil)
	g.advance(2 * stablePeriod)
	g.wantHolder(3)
	for id := election.ID(1); id <= 4; id++ {
		g.reconfigure(id, func(s *office.Settings) { s.Policy = office.Always })
	}
	g.advance(2 * lease)
	g.wantHolder(4)
}

// TestNewSettingsDontPostponeProbes: otherwise frequent changes would prevent each election.
func TestNewSettingsDontPostponeProbes(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.advance(2 * suspicionTimeout)
	for h.captured = nil; h.countSent(election.Probe) < 4; h.advance(heartbeat / 2) {
		must.Equalf(t, h.now < 5*suspicionTimeout, true, "probes of a follower without a coordinator")
		h.reconfigure(self, func(s *office.Settings) { s.Lease += h.now })
	}
}

func TestInvalidSettingsChangeNothing(t *testing.T) {
	g := newGroup(t, office.Majority, 3, newRoster(t, 1, 1, 2, 3), nil)
	for _, s := range []office.Settings{
		{Mode: office.Majority, Lease: 2 * heartbeat, Heartbeat: heartbeat, SuspicionTimeout: suspicionTimeout},
		{Mode: office.Available, Lease: lease, Heartbeat: heartbeat, SuspicionTimeout: suspicionTimeout},
	} {
		if err := g.machines[3].Reconfigure(s, g.now); err == nil {
			t.Errorf("%+v: got no error, want one", s)
		}
	}
	g.crash(3, true)
	g.advance(2 * lease)
	g.wantHolder(2)
}

// 5 exchanges messages with its coordinator only, and needn't know that while the policy is Never. The coordinator is
// the first to have the new policy.
func TestCoordinatorWithNewPolicyWaitsForProbesOfOthers(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 4, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
		g.drop = func(m *election.Message) bool { return m.From+m.To != 9 && (m.From == 5 || m.To == 5) }
		g.advance(5 * lease)
		for _, id := range []election.ID{4, 1, 2, 3, 5} {
			g.reconfigure(id, func(s *office.Settings) { s.Policy = office.WhenStable })
			g.advance(heartbeat / 2)
		}
		g.advance(40 * lease)
		expect.Equalf(t, g.countEvents(4, election.OfficeResigned), 0, "resignations (5 reaches no majority)")
	})
}
