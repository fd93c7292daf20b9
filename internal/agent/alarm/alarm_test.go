package alarm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/alarm"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

const millisecond = election.Tick(time.Millisecond)

// rung is a call of a timer's function.
type rung struct {
	name string
	at   election.Tick
}

type harness struct {
	*alarm.Alarm

	t     *testing.T
	clock *clock.Clock
	calls chan rung
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{t: t, clock: clock.New(), calls: make(chan rung, 100)}
	var err error
	if h.Alarm, err = alarm.New(h.clock); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func (h *harness) timer(name string) *alarm.Timer {
	return h.NewTimer(func() { h.calls <- rung{name, h.clock.Now()} })
}

// want waits for the next call, which must not be before the moment at.
func (h *harness) want(name string, at election.Tick) {
	h.t.Helper()
	select {
	case got := <-h.calls:
		if got.name != name || got.at < at {
			h.t.Errorf("got a call of %s at %d, want %s at %d", got.name, got.at, name, at)
		}
	case <-time.After(time.Minute):
		h.t.Fatalf("%s wasn't called within a minute", name)
	}
}

// hold keeps the goroutine of the Alarm busy until the result is called. So timers that are
// set meanwhile aren't called before.
func (h *harness) hold() (release func()) {
	h.t.Helper()
	held, released := make(chan struct{}), make(chan struct{})
	h.NewTimer(func() {
		close(held)
		<-released
	}).Set(h.clock.Now())
	<-held
	return func() { close(released) }
}

func (h *harness) wantNoMore() {
	h.t.Helper()
	expect.Lenf(h.t, h.calls, 0, "calls")
}

func TestTimersAreCalledInOrder(t *testing.T) {
	h := newHarness(t)
	now := h.clock.Now()
	for _, i := range []election.Tick{3, 1, 2} {
		h.timer(fmt.Sprint(i)).Set(now + i*20*millisecond)
	}
	for i := election.Tick(1); i <= 3; i++ {
		h.want(fmt.Sprint(i), now+i*20*millisecond)
	}
	h.wantNoMore()
}

func TestPastMomentIsDueAtOnce(t *testing.T) {
	h := newHarness(t)
	for _, at := range []election.Tick{-1, 0, 1, h.clock.Now()} {
		h.timer("past").Set(at)
		h.want("past", at)
	}
}

// TestTimerIsSetAgain: only the last moment counts, whether it is earlier or later.
func TestTimerIsSetAgain(t *testing.T) {
	h := newHarness(t)
	moved := h.timer("moved")
	now := h.clock.Now()
	moved.Set(now + 3600_000*millisecond)
	moved.Set(now + 20*millisecond)
	h.want("moved", now+20*millisecond)
	release := h.hold()
	now = h.clock.Now()
	moved.Set(now)
	moved.Set(now + 60*millisecond)
	release()
	h.want("moved", now+60*millisecond)
	h.wantNoMore()
}

// TestTimerIsMovedBySlack: the kernel's timer still expires at the first moment, which must
// neither call the function nor lose the second moment.
func TestTimerIsMovedBySlack(t *testing.T) {
	h := newHarness(t)
	moved := h.timer("moved")
	now := h.clock.Now()
	moved.Set(now + 20*millisecond)
	moved.Set(now + 25*millisecond)
	h.want("moved", now+25*millisecond)
	h.wantNoMore()
}

func TestFunctionSetsItsTimer(t *testing.T) {
	h := newHarness(t)
	var again *alarm.Timer
	count := 0
	again = h.NewTimer(func() {
		if count++; count == 10 {
			h.calls <- rung{"again", h.clock.Now()}
			return
		}
		again.Set(h.clock.Now() + millisecond)
	})
	now := h.clock.Now()
	again.Set(now)
	h.want("again", now+9*millisecond)
}

func TestUnsetAndStoppedTimersArentCalled(t *testing.T) {
	h := newHarness(t)
	unset, stopped, last := h.timer("unset"), h.timer("stopped"), h.timer("last")
	release := h.hold()
	now := h.clock.Now()
	unset.Set(now)
	stopped.Set(now)
	unset.Set(election.Never)
	stopped.Stop()
	last.Set(now)
	release()
	h.want("last", now)
	h.wantNoMore()
}

func TestCloseEndsTimers(t *testing.T) {
	h := newHarness(t)
	h.timer("closed").Set(h.clock.Now() + 3600_000*millisecond)
	h.Close()
	h.timer("later").Set(h.clock.Now())
	h.wantNoMore()
}
