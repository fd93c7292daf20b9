package supervise

import (
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

const (
	ms = time.Millisecond
	// testLease makes a margin of 100 ms.
	testLease = 800 * ms
	testDrain = 5 * time.Second
)

func lease(sent time.Duration) client.Renewal {
	return client.Renewal{Sent: sent, Until: sent + testLease, Lease: testLease, DrainTimeout: testDrain}
}

func noLease(sent time.Duration) client.Renewal {
	return client.Renewal{Sent: sent, DrainTimeout: testDrain}
}

func stopping(r client.Renewal) client.Renewal {
	r.Stopping = true
	return r
}

// change is an input and what must follow from it.
type change struct {
	in     input
	signal syscall.Signal
	kill   bool
	// killAt is when the guard must kill the program, 0 if it doesn't matter.
	killAt time.Duration
}

func TestMachine(t *testing.T) {
	const term = syscall.SIGTERM
	at := func(k kind, now time.Duration) input { return input{kind: k, now: now} }
	renew := func(r client.Renewal) input { return input{kind: renewed, now: r.Sent + ms, renewal: r} }
	for name, c := range map[string]struct {
		first   client.Renewal
		changes []change
		ended   ending
		status  int
	}{
		"renewals extend the time": {lease(0), []change{
			{in: renew(lease(200 * ms)), killAt: 900 * ms},
			{in: at(timePassed, 750*ms), killAt: 900 * ms},
		}, byItself, 0},
		"a late response doesn't shorten it": {
			lease(200 * ms), []change{{in: renew(lease(100 * ms)), killAt: 900 * ms}}, byItself, 0,
		},
		"without a renewal, it is asked, then killed before the lease ends": {lease(0), []change{
			{in: at(timePassed, 599*ms)},
			{in: at(timePassed, 600*ms), signal: term, killAt: 700 * ms},
			{in: at(timePassed, 699*ms)},
			{in: at(timePassed, 700*ms), kill: true},
			{in: at(guardEnded, 705*ms), kill: true},
			{in: at(timePassed, 710*ms), kill: true}, // until nothing is left
		}, revoked, 0},
		"a renewal after SIGTERM gives it more time": {lease(0), []change{
			{in: at(timePassed, 600*ms), signal: term},
			{in: renew(lease(610 * ms)), killAt: 1310 * ms},
			{in: at(timePassed, 700*ms)},
		}, revoked, 0},
		"a hand-over counts from the last renewal before it": {lease(time.Second), []change{
			{in: at(stopRequested, 1100*ms), signal: term, killAt: 1700 * ms},
			{in: renew(stopping(lease(5500 * ms))), killAt: time.Second + testDrain - 100*ms},
			{in: at(timePassed, 5900*ms), kill: true},
		}, revoked, 0},
		"the lease may end before the drain timeout": {lease(0), []change{
			{in: at(stopRequested, 100*ms), signal: term},
			{in: renew(stopping(lease(200 * ms))), killAt: 900 * ms},
			{in: at(timePassed, 900*ms), kill: true},
		}, revoked, 0},
		"an older agent doesn't tell the lease during a hand-over": {lease(0), []change{
			{in: at(stopRequested, 100*ms), signal: term},
			{in: renew(stopping(noLease(200 * ms))), killAt: 700 * ms},
		}, revoked, 0},
		"a renewal may be the first sign of a hand-over": {lease(0), []change{
			{in: renew(stopping(lease(100 * ms))), signal: term},
			{in: at(stopRequested, 110*ms)},
		}, revoked, 0},
		"it is killed at once if the tenure has ended": {
			lease(0), []change{{in: at(tenureEnded, ms), kill: true}}, revoked, 0,
		},
		"it is killed at once if the tenure ends in a hand-over": {lease(0), []change{
			{in: at(stopRequested, ms), signal: term}, {in: at(tenureEnded, 2*ms), kill: true},
		}, revoked, 0},
		"it ends by itself": {
			lease(0), []change{{in: input{kind: guardEnded, now: ms, status: 7}, kill: true}}, byItself, 7,
		},
		"it ends by itself before it is killed": {lease(0), nil, byItself, 7},
		"the first status counts": {lease(0), []change{
			{in: input{kind: guardEnded, now: ms, status: stoppedStatus}, kill: true},
			{in: input{kind: guardEnded, now: 2 * ms, status: 137}, kill: true},
		}, byItself, stoppedStatus},
		"a user ends it": {lease(0), []change{
			{in: input{kind: terminated, now: 100 * ms, signal: syscall.SIGINT}, signal: syscall.SIGINT},
			{in: input{kind: terminated, now: 110 * ms, signal: syscall.SIGINT}, signal: syscall.SIGINT},
			{in: renew(lease(4900 * ms)), killAt: 5 * time.Second},
			{in: input{kind: guardEnded, now: 4950 * ms, status: 130}, kill: true},
		}, bySignal, 130},
		"a user ends it during a hand-over": {lease(0), []change{
			{in: at(stopRequested, ms), signal: term},
			{in: input{kind: terminated, now: 2 * ms, signal: term}, signal: term},
			{in: input{kind: guardEnded, now: 3 * ms, status: 143}, kill: true},
		}, bySignal, 143},
		"without a lease, silence ends it": {noLease(time.Second), []change{
			{in: renew(noLease(2 * time.Second)), killAt: 5*time.Second - 375*ms},
			{in: at(timePassed, 4249*ms)},
			{in: at(timePassed, 4250*ms), signal: term},
			{in: at(timePassed, 4625*ms), kill: true},
		}, revoked, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(c.first)
			for i, change := range c.changes {
				out := m.step(change.in)
				if out.signal != change.signal || out.kill != change.kill || out.done {
					t.Errorf("input %d: got %+v, want signal %d and kill %t", i+1, out, change.signal, change.kill)
				}
				if change.killAt != 0 && m.At() != change.killAt {
					t.Errorf("input %d: the program is killed at %s, want %s", i+1, m.At(), change.killAt)
				}
				if !out.kill && m.next() > m.At() {
					t.Errorf("input %d: the machine waits until %s, want at most %s", i+1, m.next(), m.At())
				}
			}
			if out := m.step(input{kind: noneLeft, now: time.Hour, status: c.status}); !out.done {
				t.Error("the tenure isn't released although nothing is left")
			}
			if m.ended != c.ended || m.status != c.status {
				t.Errorf("got ending %d and status %d, want %d and %d", m.ended, m.status, c.ended, c.status)
			}
		})
	}
}

// TestKillPrecedesTheEndOfTheLease: for every lease, there is time for both signals, and no more than the lease.
func TestKillPrecedesTheEndOfTheLease(t *testing.T) {
	for _, rest := range []time.Duration{ms, 10 * ms, 500 * ms, 10 * time.Second, 10 * time.Minute} {
		m := newMachine(client.Renewal{Sent: time.Hour, Until: time.Hour + rest, Lease: rest, DrainTimeout: rest})
		if m.termAt() <= time.Hour || m.At() <= m.termAt() || m.At() >= time.Hour+rest ||
			time.Hour+rest-m.At() > 2*time.Second {
			t.Errorf("with a lease of %s, SIGTERM follows after %s and SIGKILL after %s", rest,
				m.termAt()-time.Hour, m.At()-time.Hour)
		}
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	for i, want := range []time.Duration{100 * ms, 200 * ms, 400 * ms} {
		expect.Equalf(t, b.next(time.Second), want, "pause %d", i+1)
	}
	for range 20 {
		b.next(time.Second)
	}
	expect.Equalf(t, b.next(time.Second), maxBackoff, "after many failures")
	expect.Equalf(t, b.next(longLife), minBackoff, "after a long life")
}
