package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

const calmPeriod = 4 * heartbeat

// newHolder returns process 3 of 1 to 5, which holds the office in term 20.
func newHolder(t *testing.T, mode office.Mode, tune func(*office.Config)) *harness {
	t.Helper()
	h := newCandidate(t, mode, tune)
	h.grant(0, 0)
	h.wantHolder(self)
	return h
}

// grant lets all members grant the last BEAT for the lease that it requests, after a delay.
func (h *harness) grant(delay, lease election.Tick) {
	h.t.Helper()
	sent := h.now
	h.now += delay
	for _, id := range []election.ID{1, 2, 4, 5} {
		h.receive(id, election.Grant, term(20), election.Hold{Sent: sent, Lease: lease})
	}
}

// renew advances to the next BEATs and returns what one of them requests and announces.
func (h *harness) renew() election.Hold {
	h.t.Helper()
	h.captured = nil
	for range 4 { // The detector has deadlines, too.
		h.now = max(h.now, h.machines[self].Deadline())
		h.input(self, election.Input{Kind: election.TimePassed})
		for _, m := range h.captured {
			if m.Kind == election.Beat && m.Hold.Held {
				return m.Hold
			}
		}
	}
	h.t.Fatalf("at %d: got no BEAT", h.now)
	return election.Hold{}
}

// TestTenureCountsLongestPromise: while the lease becomes shorter, the longer promises still count.
func TestTenureCountsLongestPromise(t *testing.T) {
	h := newHolder(t, office.Majority, grows) // all have granted for the longest lease
	until := h.now + 4*lease - 4*lease/16 - 1
	h.renew()
	h.grant(0, lease)
	expect.Equalf(t, h.machines[self].Status().Until, until,
		"end of the tenure after a renewal for a shorter lease")
}

// The grants of a claim have expired when they arrive. It then requests them for longer.
func TestLateGrantsMakeClaimsLonger(t *testing.T) {
	h := newCandidate(t, office.Majority, grows)
	h.grant(lease, lease)
	h.captured = nil
	h.advance(2 * heartbeat)
	requested := election.Tick(0)
	for _, m := range h.captured {
		if m.Kind == election.Beat {
			requested = max(requested, m.Hold.Lease)
		}
	}
	expect.AtLeastf(t, requested, 2*lease, "requested lease after grants that took a lease")
}

func TestFollowersAdoptAnnouncedInterval(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		beat := func(hold election.Hold) {
			hold.Held = true
			h.receive(4, election.Beat, term(10), hold)
		}
		wantSuspicionAfter := func(want election.Tick) {
			t.Helper()
			expect.Equalf(t, h.machines[self].SuspicionTimeoutInForce(), want, "suspicion timeout")
			expect.AtMostf(t, h.machines[self].Deadline()-h.now, want,
				"ticks until the deadline, when the coordinator is suspected")
		}
		wantSuspicionAfter(suspicionTimeout)
		beat(election.Hold{Heartbeat: heartbeat / 2}) // the coordinator has other settings
		wantSuspicionAfter(suspicionTimeout)
		beat(election.Hold{Heartbeat: heartbeat * 2}) // its renewals are late, or it has other settings
		wantSuspicionAfter(suspicionTimeout * 2)
		beat(election.Hold{Heartbeat: election.Never}) // longer than a lease allows
		wantSuspicionAfter(lease)
		beat(election.Hold{})
		wantSuspicionAfter(suspicionTimeout)
	})
}

// Its lease has become longer since.
func TestLateBeatAnnouncesNothing(t *testing.T) {
	for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
		h := newFollower(t, mode, nil)
		beat := func(life uint32, sent, interval election.Tick) {
			h.receive(4, election.Beat, term(10), election.Hold{Held: true, Life: life, Sent: sent, Heartbeat: interval})
		}
		beat(1, 20, 2*heartbeat)
		beat(1, 10, heartbeat)
		expect.Equalf(t, h.machines[self].SuspicionTimeoutInForce(), 2*suspicionTimeout,
			"%v: after a late BEAT: suspicion timeout", mode)
		beat(2, 1, heartbeat) // another incarnation, whose clock has begun again
		expect.Equalf(t, h.machines[self].SuspicionTimeoutInForce(), suspicionTimeout,
			"%v: after a BEAT of another incarnation: suspicion timeout", mode)
	}
}

func TestNegativeDurationIsRefused(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(3 * lease)
		for _, hold := range []election.Hold{{Lease: -1}, {Heartbeat: -1}} {
			h.receive(5, election.Beat, term(30), hold)
			h.wantAnswer(5, election.NoKind)
		}
		h.receive(5, election.Beat, term(30), election.Hold{Lease: lease})
		h.wantAnswer(5, election.Grant)
	})
}

// TestAlignedHeartbeats: the coordinator sends its BEATs at multiples of the heartbeat,
// whenever its tenure began, and announces the tenure at once.
func TestAlignedHeartbeats(t *testing.T) {
	for began := election.Tick(1); began <= heartbeat; began++ {
		var sent []election.Tick
		g := &group{t: t, mode: office.Majority, now: began - 1}
		g.configure = func(c *office.Config) { c.AlignHeartbeats = true }
		g.drop = func(m *election.Message) bool {
			if m.Kind == election.Beat && m.Hold.Held && m.To == 1 {
				sent = append(sent, g.now)
			}
			return false
		}
		g.startAgreed(3, newRoster(t, 1, 1, 2, 3))
		g.advance(10 * heartbeat)
		g.wantHolder(3)
		if len(sent) == 0 || sent[0] > began {
			t.Fatalf("began at %d: got BEATs at %d, want the first one at once", began, sent)
		}
		for i, at := range sent[1:] {
			if at%heartbeat != 0 || at-sent[i] > heartbeat {
				t.Errorf("began at %d: got BEATs at %d, want each multiple of %d", began, sent, heartbeat)
				break
			}
		}
	}
}

// TestPausedFollowerReadsItsMessagesFirst: a follower was paused for longer than the
// suspicion timeout. Its timer fires before it reads the BEATs that have arrived.
func TestPausedFollowerReadsItsMessagesFirst(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.now += suspicionTimeout + heartbeat
	h.input(self, election.Input{Kind: election.TimePassed})
	expect.Equalf(t, h.machines[self].Status().Coordinator, 4, "before it reads: coordinator")
	h.receive(4, election.Beat, term(10), election.Hold{Held: true, Sent: h.now})
	expect.Equalf(t, h.machines[self].Status().Coordinator, 4, "coordinator")
	if h.countSent(election.Probe) > 0 {
		t.Error("the follower sent probes, as if it knew no coordinator")
	}
}

// TestSilentCoordinatorIsSuspectedAfterPause: the coordinator crashed while the follower was paused.
func TestSilentCoordinatorIsSuspectedAfterPause(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.now += suspicionTimeout + heartbeat
	for range 3 {
		h.input(self, election.Input{Kind: election.TimePassed})
		h.now += heartbeat // late again each time
	}
	expect.Equalf(t, h.machines[self].Status().Coordinator, election.None, "coordinator")
}
