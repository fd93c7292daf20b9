package clock

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestWallClockShiftsEpochs: the time of day at the start shifts all epochs, and doesn't affect ticks.
func TestWallClockShiftsEpochs(t *testing.T) {
	noon := time.Date(2027, time.March, 1, 12, 0, 0, 0, time.UTC)
	one, other := New(noon), New(noon.Add(time.Hour))
	if ahead := other.TermClock().AtBoot -
		one.TermClock().AtBoot; ahead != election.Epoch(time.Hour/control.EpochDuration) {
		t.Errorf("got %d epochs in an hour, want %d", ahead, time.Hour/control.EpochDuration)
	}
	for _, c := range []*Clock{one, other} {
		if boot := c.TermClock().Boot; boot < 1 || boot > c.Now() {
			t.Errorf("got start %d, want a tick from 1 to %d", boot, c.Now())
		}
	}
	boot := one.TermClock()
	at := boot.Boot + election.Tick(time.Minute)
	before := one.TermClock().Ceiling(at)
	for range 1000 {
		if now := one.TermClock().Ceiling(at); now != before {
			t.Fatalf("got term %d for a tick, want %d as before", now, before)
		}
	}
	minute := election.Epoch(time.Minute / control.EpochDuration)
	// The next one may be about to begin.
	if epochs := before.Epoch() - boot.AtBoot; epochs != minute && epochs != minute+1 {
		t.Errorf("got %d epochs in a minute, want %d", epochs, minute)
	}
}

func TestWallClockBeforeYear2026StartsAtEpochZero(t *testing.T) {
	expect.Equalf(t, New(time.Unix(0, 0)).TermClock().AtBoot, 0, "epoch in 1970")
}

// TestCorrectAdoptsTimeAfterTwoReadings: a wall clock that was set counts from the second
// reading on. One wrong reading and small differences don't count.
func TestCorrectAdoptsTimeAfterTwoReadings(t *testing.T) {
	start := time.Now()
	for _, jump := range []time.Duration{-time.Hour, -2 * time.Second, 2 * time.Second, 24 * time.Hour} {
		c := New(start)
		want := election.Term(control.TermAt(start.Add(jump)))
		for i, step := range []struct {
			shift     time.Duration
			corrected bool
		}{{jump, false}, {0, false}, {jump / 4, false}, {jump, false}, {jump, true}, {jump, false}} {
			if step.shift == jump/4 && jump.Abs() > 3*time.Second {
				step.shift = 0
			}
			expect.Equalf(t, c.Correct(start.Add(step.shift)), step.corrected,
				"clock set by %v, reading %d: corrected", jump, i)
		}
		if got := c.CurrentTerm(); got < want || got > want+(50<<4) { // The test itself takes a moment.
			t.Errorf("clock set by %v: got term %d, want %d", jump, got, want)
		}
		if boot := c.TermClock(); boot.Ceiling(c.Now()) < want || boot.Boot > c.Now() {
			t.Errorf("clock set by %v: got %+v for a machine that starts now, want term %d", jump, boot, want)
		}
	}
}

// TestReadingLagsBehindByMaxDelay: a derived reading is at most the reading of the kernel,
// and at least that minus maxDelay.
func TestReadingLagsBehindByMaxDelay(t *testing.T) {
	r := reading{started: time.Now()}
	last := time.Duration(0)
	for range 10_000 {
		before := Boottime()
		got := r.boottime()
		after := Boottime()
		if got < before-maxDelay || got > after || got < last {
			t.Fatalf("got %d, want at least %d, and %d minus %s, and at most %d", got, last, before, maxDelay, after)
		}
		last = got
	}
}

func TestOldReadingIsNotUsed(t *testing.T) {
	r := reading{started: time.Now().Add(-time.Hour), at: time.Hour - validity, boot: 1}
	if before, got := Boottime(), r.boottime(); got < before {
		t.Errorf("got %d, want at least %d", got, before)
	}
}
