package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

const (
	minHeartbeat election.Tick = heartbeat * 2 / 5
	calmPeriod                 = 4 * heartbeat
)

func adapts(c *office.Config) { c.MinHeartbeat, c.CalmPeriod = minHeartbeat, calmPeriod }

// newHolder returns process 3 of 1 to 5, which holds the office in term 20.
func newHolder(t *testing.T, mode office.Mode, tune func(*office.Config)) *harness {
	t.Helper()
	g := &group{t: t, mode: mode, configure: tune}
	g.capture = func(*election.Message) bool { return true }
	g.start(self, newRoster(t, 1, 1, 2, 3, 4, 5), func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, 20, self })
	g.advance(1)
	h := &harness{g}
	h.grant(0, 0)
	h.wantHolder(self)
	return h
}

// grant lets all members grant the last BEAT for the lease that it requests, after a
// delay.
func (h *harness) grant(delay, lease election.Tick) {
	h.t.Helper()
	sent := h.now
	h.now += delay
	for _, id := range []election.ID{1, 2, 4, 5} {
		h.receive(id, election.Grant, 20, election.Hold{Sent: sent, Lease: lease})
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

// calm renews promptly until the timing is the shortest.
func (h *harness) calm() election.Hold {
	h.t.Helper()
	last := election.Hold{}
	for range 3 * (calmPeriod / minHeartbeat) {
		last = h.renew()
		h.grant(0, last.Lease)
	}
	if last.Heartbeat != minHeartbeat {
		h.t.Fatalf("after calm periods: got an interval of %d, want %d", last.Heartbeat, minHeartbeat)
	}
	return last
}

func TestTimingShrinksSlowlyAndLeaseOnlyInMajority(t *testing.T) {
	leases := map[office.Mode][2]election.Tick{office.Available: {}, office.Majority: {lease, lease * 2 / 5}, office.Strict: {lease, lease}}
	for mode, want := range leases {
		h := newHolder(t, mode, adapts)
		first := h.renew()
		if first.Heartbeat != heartbeat || first.Lease != want[0] {
			t.Errorf("%s: at the start got %d and %d, want the configured timing", mode, first.Heartbeat, first.Lease)
		}
		h.grant(0, 0)
		begun := h.now
		for h.renew().Heartbeat == heartbeat {
			h.grant(0, 0)
		}
		if h.now < begun+calmPeriod-2*heartbeat {
			t.Errorf("%s: got a shorter interval after %d, want a calm period of %d before", mode, h.now-begun, calmPeriod)
		}
		if got := h.machines[self].HeartbeatInForce(); got != heartbeat/2 {
			t.Errorf("%s: after a calm period got an interval of %d, want half of %d", mode, got, heartbeat)
		}
		h.grant(0, 0)
		if last := h.calm(); last.Lease != want[1] {
			t.Errorf("%s: got a request for a lease of %d, want %d", mode, last.Lease, want[1])
		}
	}
}

func TestLateAnswerMakesHeartbeatLongerAtOnce(t *testing.T) {
	h := newHolder(t, office.Majority, adapts)
	last := h.calm()
	h.renew()
	h.grant(4, last.Lease) // 4 ticks are a quarter of 16
	if got := h.renew(); got.Heartbeat != 16 || got.Lease != lease*16/heartbeat {
		t.Errorf("got an interval of %d and a lease of %d, want 16 and %d", got.Heartbeat, got.Lease, lease*16/heartbeat)
	}
	h.grant(heartbeat, 0)
	if got := h.renew(); got.Heartbeat != heartbeat || got.Lease != lease {
		t.Errorf("got an interval of %d and a lease of %d, want the configured timing", got.Heartbeat, got.Lease)
	}
	h.grant(0, 0)
	for range calmPeriod/heartbeat - 1 {
		if got := h.renew(); got.Heartbeat != heartbeat {
			t.Errorf("got an interval of %d soon after a long delay, want the configured one", got.Heartbeat)
		}
		h.grant(0, 0)
	}
	h.calm()
}

func TestLateTimerMakesHeartbeatLonger(t *testing.T) {
	h := newHolder(t, office.Majority, adapts)
	h.calm()
	h.now = h.machines[self].Deadline() + heartbeat
	h.input(self, election.Input{Kind: election.TimePassed})
	if got := h.machines[self].HeartbeatInForce(); got != heartbeat {
		t.Errorf("got an interval of %d, want %d", got, heartbeat)
	}
}

// TestFalseSuspicionMakesHeartbeatLonger: a member has lost this coordinator.
func TestFalseSuspicionMakesHeartbeatLonger(t *testing.T) {
	h := newHolder(t, office.Majority, adapts)
	h.calm()
	h.input(self, election.Input{Kind: election.Receive, Message: election.Message{Kind: election.Probe, From: 2, To: self, Term: 20, Hold: election.Hold{Life: 1}}})
	if got := h.machines[self].HeartbeatInForce(); got != heartbeat {
		t.Errorf("got an interval of %d, want %d", got, heartbeat)
	}
}

// TestTenureCountsLeaseOfGrants: while the lease becomes shorter, the longer promises
// still count, and once it is shorter, the tenure ends sooner.
func TestTenureCountsLeaseOfGrants(t *testing.T) {
	h := newHolder(t, office.Majority, adapts)
	last := h.calm()
	short := h.now + last.Lease - last.Lease/16 - 1
	if got := h.machines[self].Status().Until; got != short {
		t.Errorf("got a tenure until %d, want %d", got, short)
	}
	sent := h.now
	for _, id := range []election.ID{1, 2, 4} { // members that promise more, such as older agents
		h.receive(id, election.Grant, 20, election.Hold{Sent: sent})
	}
	if got, want := h.machines[self].Status().Until, sent+lease-lease/16-1; got != want {
		t.Errorf("got a tenure until %d, want %d", got, want)
	}
}

func TestFollowersAdoptAnnouncedInterval(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, adapts)
		beat := func(hold election.Hold) {
			hold.Held = true
			h.receive(4, election.Beat, 10, hold)
		}
		wantSuspicionAfter := func(want election.Tick) {
			t.Helper()
			if got := h.machines[self].Deadline() - h.now; got != want {
				t.Errorf("got a deadline after %d, want a suspicion after %d", got, want)
			}
		}
		wantSuspicionAfter(suspicionTimeout - 1)
		beat(election.Hold{Heartbeat: heartbeat / 2})
		wantSuspicionAfter(suspicionTimeout / 2)
		beat(election.Hold{Heartbeat: 1}) // below the member's own bound
		wantSuspicionAfter(suspicionTimeout * 2 / 5)
		beat(election.Hold{Heartbeat: heartbeat * 2}) // the coordinator has other settings
		wantSuspicionAfter(suspicionTimeout * 2)
		beat(election.Hold{Heartbeat: election.Never}) // longer than a lease allows
		wantSuspicionAfter(suspicionTimeout * (lease / 2) / heartbeat)
		beat(election.Hold{Heartbeat: heartbeat / 2})
		beat(election.Hold{})
		wantSuspicionAfter(suspicionTimeout)
	})
}

// The coordinator has found delays since, and sends BEATs less often.
func TestLateBeatAnnouncesNothing(t *testing.T) {
	for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
		h := newFollower(t, mode, adapts)
		beat := func(life uint32, sent, interval election.Tick) {
			h.receive(4, election.Beat, 10, election.Hold{Held: true, Life: life, Sent: sent, Heartbeat: interval})
		}
		beat(1, 20, heartbeat)
		beat(1, 10, minHeartbeat)
		if got := h.machines[self].HeartbeatInForce(); got != heartbeat {
			t.Errorf("%v: after a late BEAT got an interval of %d, want %d", mode, got, heartbeat)
		}
		beat(2, 1, minHeartbeat) // another incarnation, whose clock has begun again
		if got := h.machines[self].HeartbeatInForce(); got != minHeartbeat {
			t.Errorf("%v: after a BEAT of another incarnation got an interval of %d, want %d", mode, got, minHeartbeat)
		}
	}
}

func TestMemberThatDoesntAdaptIgnoresInterval(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.receive(4, election.Beat, 10, election.Hold{Held: true, Heartbeat: 1})
	if got := h.machines[self].Deadline() - h.now; got != suspicionTimeout {
		t.Errorf("got a deadline after %d, want a suspicion after %d", got, suspicionTimeout)
	}
}

// TestNextCoordinatorBeginsWithConfiguredTiming: while there is no coordinator, and at the
// start of a tenure, nothing is known of the delays.
func TestNextCoordinatorBeginsWithConfiguredTiming(t *testing.T) {
	h := newFollower(t, office.Majority, adapts)
	h.receive(4, election.Beat, 10, election.Hold{Held: true, Heartbeat: minHeartbeat})
	h.receive(4, election.Resigned, 10, election.Hold{})
	if got := h.machines[self].HeartbeatInForce(); got != heartbeat {
		t.Errorf("without a coordinator: got an interval of %d, want %d", got, heartbeat)
	}
	h.receive(5, election.Beat, 12, election.Hold{Held: true})
	if got := h.machines[self].HeartbeatInForce(); got != heartbeat {
		t.Errorf("with the next coordinator: got an interval of %d, want %d", got, heartbeat)
	}
}

func TestNegativeDurationIsRefused(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(3 * lease)
		for _, hold := range []election.Hold{{Lease: -1}, {Heartbeat: -1}} {
			h.receive(5, election.Beat, 30, hold)
			h.wantAnswer(5, election.NoKind)
		}
		h.receive(5, election.Beat, 30, election.Hold{Lease: lease})
		h.wantAnswer(5, election.Grant)
	})
}

// TestSilentCoordinatorIsReplacedSooner compares a group that adapts with one that
// doesn't.
func TestSilentCoordinatorIsReplacedSooner(t *testing.T) {
	vacancy := func(tune func(*office.Config)) election.Tick {
		g := newGroup(t, office.Majority, 5, newRoster(t, 1, 1, 2, 3, 4, 5), tune)
		g.advance(20 * heartbeat)
		g.wantHolder(5)
		g.crash(5, false)
		since := g.now
		for len(g.holders()) == 0 && g.now < since+10*lease {
			g.advance(1)
		}
		g.wantHolder(4)
		return g.now - since
	}
	fixed, adaptive := vacancy(nil), vacancy(adapts)
	if adaptive > lease*2/5+2 || fixed < lease-heartbeat {
		t.Errorf("got no holder for %d and, with a timing that adapts, for %d, want a lease each: at least %d and at most %d",
			fixed, adaptive, lease-heartbeat, lease*2/5+2)
	}
}
