package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestNoTenureThatCannotBeRenewed: a tenure would end before the answers to its second BEAT.
func TestNoTenureThatCannotBeRenewed(t *testing.T) {
	for _, test := range []struct{ lease, heartbeat, oneWay election.Tick }{
		{500, 100, 190}, {500, 100, 230}, {201, 100, 45}, {250, 100, 70}, {500, 200, 150}, {500, 240, 150},
	} {
		inGrantModes(t, func(t *testing.T, mode office.Mode) {
			d := newDelayed(t, mode, 5, test.oneWay, milliseconds(test.lease, test.heartbeat))
			d.run(minute)
			expect.Equalf(t, len(d.starts), 0, "%+v: tenures in a minute", test)
			reports := 0
			for id := election.ID(1); id <= 5; id++ {
				n := d.countEvents(id, election.TooSlow)
				expect.AtMostf(t, n, 1, "%+v: reports of process %d that the members are too slow", test, id)
				reports += n
				if got, limit := d.machines[id].SlowAnswers(); n == 1 && (got < 2*test.oneWay || got > 2*test.oneWay+test.heartbeat || limit > got || limit < 80) {
					t.Errorf("%+v: process %d: got a round trip of %d, want about %d", test, id, got, 2*test.oneWay)
				}
			}
			if reports == 0 {
				t.Errorf("%+v: got no report of the reason", test)
			}
			d.oneWay = 1
			d.run(minute + 5000)
			if got, _ := d.machines[5].SlowAnswers(); len(d.starts) != 1 || got != 0 {
				t.Errorf("%+v: got %d tenures when messages are fast again, want 1", test, len(d.starts))
			}
		})
	}
}

// TestRenewableTenuresLast: these latencies are just short enough.
func TestRenewableTenuresLast(t *testing.T) {
	for _, test := range []struct{ lease, heartbeat, oneWay election.Tick }{
		{500, 100, 180}, {201, 100, 40}, {250, 100, 60}, {500, 200, 130}, {500, 240, 110}, {500, 100, 0}, {201, 100, 0},
	} {
		inGrantModes(t, func(t *testing.T, mode office.Mode) {
			d := newDelayed(t, mode, 5, test.oneWay, milliseconds(test.lease, test.heartbeat))
			d.run(minute)
			if len(d.starts) != 1 {
				t.Errorf("%+v: got tenures at %v, want one", test, d.starts)
			}
		})
	}
}

// TestDeferredGrantsAreRenewedAtOnce: the members defer their grants until the lease of the last
// coordinator ends, which is almost a heartbeat after they were requested.
func TestDeferredGrantsAreRenewedAtOnce(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode, configure: func(c *office.Config) { c.Lease = 2*heartbeat + 1 }}
		g.capture = func(*election.Message) bool { return true }
		g.start(self, newRoster(t, 1, 1, 2, 3, 4, 5), func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, 20, self })
		h := &harness{g}
		h.advance(1)
		sent := h.now
		h.advance(heartbeat - 1)
		h.receive(1, election.Grant, 20, election.Hold{Sent: sent})
		h.receive(2, election.Grant, 20, election.Hold{Sent: sent})
		h.wantHolder(election.None)
		if n := h.countSent(election.Beat); n != 4 {
			t.Errorf("got %d requests, want 4 at once", n)
		}
		h.receive(1, election.Grant, 20, election.Hold{Sent: h.now})
		h.receive(2, election.Grant, 20, election.Hold{Sent: h.now})
		h.wantHolder(self)
		expect.Equalf(t, h.countEvents(self, election.TooSlow), 0, "report that the members are too slow")
	})
}

// TestDelaysThatVaryCauseFewTenures: the round trip is now below the limit of 367, and now above.
func TestDelaysThatVaryCauseFewTenures(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, varies := range []election.Tick{10, 40} {
			d := newDelayed(t, mode, 5, 183-varies/2, milliseconds(500, 100))
			d.varies = varies
			d.run(3 * minute)
			expect.AtMostf(t, d.mostStarts(minute), 3, "delays that vary by %d: tenures within a minute", varies)
		}
	})
}

// TestFastNetworkIsFastEnoughAfterLapses: messages were lost for a while, several times. With the shortest lease, grants
// can't last much longer than a heartbeat, whatever the delays are.
func TestFastNetworkIsFastEnoughAfterLapses(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		d := newDelayed(t, mode, 5, 1, milliseconds(201, 100))
		for range 8 {
			began := d.now
			for len(d.holders()) == 0 {
				if d.run(d.now + 10); d.now > began+4000 {
					t.Fatalf("at %d, after %d tenures: got no coordinator for 4 s", d.now, len(d.starts))
				}
			}
			d.drop = func(*election.Message) bool { return true }
			d.run(d.now + 1000)
			d.drop = nil
		}
	})
}
