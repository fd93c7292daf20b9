package office_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// delayed is a group in which each message takes a constant time.
type delayed struct {
	*group
	oneWay election.Tick
	// varies is how much longer a message may take.
	varies election.Tick
	random rand.Rand
	mail   []delayedMessage
	plans  []plan
	// paused are the processes that stand still. They handle their messages later.
	paused [101]bool
	// starts are the tenures that began.
	starts []tenureStart
}

type delayedMessage struct {
	at election.Tick
	election.Message
}

// plan is something that happens at a moment.
type plan struct {
	at election.Tick
	do func()
}

type tenureStart struct {
	at election.Tick
	id election.ID
}

// newDelayed starts a group without a coordinator whose messages take oneWay.
func newDelayed(t *testing.T, mode office.Mode, members int, oneWay election.Tick, tune func(*office.Config)) *delayed {
	t.Helper()
	d := &delayed{group: &group{t: t, mode: mode, configure: tune}, oneWay: oneWay, random: *rand.New(rand.NewPCG(1, 1))}
	var ids []election.ID
	for id := range members {
		ids = append(ids, election.ID(id+1))
	}
	for _, id := range ids {
		d.start(id, newRoster(t, 1, ids...), func(c *office.Config) { c.MemoryLost = false })
	}
	return d
}

// in plans something.
func (d *delayed) in(delay election.Tick, do func()) {
	d.plans = append(d.plans, plan{d.now + delay, do})
}

// run lets the time pass until the moment end.
func (d *delayed) run(end election.Tick) {
	d.t.Helper()
	for d.collect(); d.now < end; d.collect() {
		d.now = max(d.now+1, min(end, d.next()))
		due := func(p plan) bool { return p.at <= d.now }
		for at := slices.IndexFunc(d.plans, due); at >= 0; at = slices.IndexFunc(d.plans, due) {
			do := d.plans[at].do
			d.plans = slices.Delete(d.plans, at, at+1)
			do()
		}
		var arrived []election.Message
		d.mail = slices.DeleteFunc(d.mail, func(m delayedMessage) bool {
			arrives := m.at <= d.now && !d.paused[m.To]
			if arrives {
				arrived = append(arrived, m.Message)
			}
			return arrives
		})
		for _, m := range arrived {
			d.deliver(m)
		}
		for id, m := range d.machines {
			for n := 0; m != nil && m.Deadline() <= d.now && !d.paused[id]; n++ {
				if n > 100 {
					d.t.Fatalf("at %d process %d requests ticks forever", d.now, id)
				}
				d.step(election.ID(id), election.Input{Kind: election.TimePassed})
			}
		}
	}
}

// next returns the moment at which something happens next.
func (d *delayed) next() election.Tick {
	next := election.Never
	for _, p := range d.plans {
		next = min(next, p.at)
	}
	for _, m := range d.mail {
		if !d.paused[m.To] {
			next = min(next, m.at)
		}
	}
	for id, m := range d.machines {
		if m != nil && !d.paused[id] {
			next = min(next, m.Deadline())
		}
	}
	return next
}

// collect puts what was sent into the mail, and records tenures.
func (d *delayed) collect() {
	d.t.Helper()
	for _, m := range d.inFlight {
		if d.drop == nil || !d.drop(&m) {
			d.mail = append(d.mail, delayedMessage{d.now + d.oneWay + election.Tick(d.random.Int64N(int64(d.varies)+1)), m})
		}
	}
	d.inFlight = d.inFlight[:0]
	d.events = slices.DeleteFunc(d.events, func(e groupEvent) bool {
		starts := e.event.Kind == election.TenureStarted
		if starts {
			d.starts = append(d.starts, tenureStart{d.now, e.id})
		}
		return starts
	})
}

// mostStarts returns the most tenures that began within a minute, from the moment from on.
func (d *delayed) mostStarts(from election.Tick) (most int) {
	for i, first := range d.starts {
		n := 0
		for _, later := range d.starts[i:] {
			if later.at < first.at+minute {
				n++
			}
		}
		if first.at >= from {
			most = max(most, n)
		}
	}
	return most
}

// pauseEvery makes a process stand still again and again.
func (d *delayed) pauseEvery(period, pause election.Tick, id election.ID) {
	d.in(period, func() {
		d.paused[id] = true
		d.in(pause, func() { d.paused[id] = false })
		d.pauseEvery(period, pause, id)
	})
}

// failAfterStart makes the application of a process fail in each tenure.
func (d *delayed) failAfterStart(delay, repair election.Tick, id election.ID) {
	seen := 0
	var watch func()
	watch = func() {
		for _, s := range d.starts[seen:] {
			if s.id == id {
				d.in(delay, func() { d.step(id, election.Input{Kind: election.BecomeIneligible}) })
				d.in(delay+repair, func() { d.step(id, election.Input{Kind: election.BecomeEligible}) })
			}
		}
		seen = len(d.starts)
		d.in(10, watch)
	}
	watch()
}

const minute election.Tick = 60_000 // see milliseconds

// milliseconds returns a configuration in which a tick is a millisecond.
func milliseconds(lease, heartbeat election.Tick) func(*office.Config) {
	return func(c *office.Config) {
		c.Lease, c.Heartbeat, c.SuspicionTimeout, c.Stagger = lease, heartbeat, 4*heartbeat, heartbeat/2
		c.StablePeriod, c.DrainTimeout, c.LongTenure = 5000, 5000, minute
		c.Timing = election.DefaultTiming(heartbeat/2, 0)
	}
}

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
				if got, limit := d.machines[id].SlowAnswers(); n == 1 &&
					(got < 2*test.oneWay || got > 2*test.oneWay+test.heartbeat || limit > got || limit < 80) {
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
			expect.Lenf(t, d.starts, 1, "%+v: tenures", test)
		})
	}
}

// TestDeferredGrantsAreRenewedAtOnce: the members defer their grants until the lease of the last
// coordinator ends, which is almost a heartbeat after they were requested.
func TestDeferredGrantsAreRenewedAtOnce(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newCandidate(t, mode, func(c *office.Config) { c.Lease = 2*heartbeat + 1 })
		sent := h.now
		h.advance(heartbeat - 1)
		h.receive(1, election.Grant, term(20), election.Hold{Sent: sent})
		h.receive(2, election.Grant, term(20), election.Hold{Sent: sent})
		h.wantHolder(election.None)
		expect.Equalf(t, h.countSent(election.Beat), 4, "requests (at once)")
		h.receive(1, election.Grant, term(20), election.Hold{Sent: h.now})
		h.receive(2, election.Grant, term(20), election.Hold{Sent: h.now})
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

// TestFastNetworkIsFastEnoughAfterLapses: messages were lost for a while, several times. With the shortest lease,
// grants can't last much longer than a heartbeat, whatever the delays are.
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
