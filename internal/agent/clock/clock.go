// Package clock provides the time of an agent: ticks for the election machines, and
// terms.
//
// A tick is a nanosecond of CLOCK_BOOTTIME since the process started. Unlike the
// monotonic clock of package time, CLOCK_BOOTTIME advances while the machine is
// suspended: an agent that resumes must see that its lease has expired. Adjustments
// of the wall clock don't affect it.
//
// The wall clock is read only once, when the process starts, for
// election.TermClock: a term is 100 ms long, and term 0 is the beginning of 2026.
//
// # Wrong wall clocks
//
// A wrong wall clock doesn't affect safety. If it is wrong by up to a minute, the
// office waits until the slower term clocks reach the terms of the faster ones.
// Beyond that, the other members reject the terms of the agent and elect one of
// themselves. An agent whose clock is behind also rejects theirs, and knows no
// coordinator. To recover, correct the wall clock and restart the agent: a running
// agent doesn't read it again.
//
// # What is not guaranteed
//
// A virtual machine that its host suspends may not notice the suspension.
package clock

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// TermDuration is the minimum duration of a term.
const TermDuration = 100 * time.Millisecond

// Clock is a running clock. Its first tick is 1, because 0 means no time.
type Clock struct {
	start time.Duration
	terms election.TermClock
}

// New starts a clock. wall is the current time of day.
func New(wall time.Time) *Clock {
	c := &Clock{start: boottime() - 1}
	c.terms = election.TermClock{
		AtBoot: election.Term(control.TermAt(wall)), Boot: c.Now(), TicksPerTerm: election.Tick(control.TermDuration),
	}
	return c
}

// Now returns the current tick.
func (c *Clock) Now() election.Tick { return election.Tick(boottime() - c.start) }

// Until returns the duration until a tick.
func (c *Clock) Until(at election.Tick) time.Duration { return time.Duration(at - c.Now()) }

// TermClock returns the term clock of a machine that starts now. A machine that
// doesn't start with the process may have a predecessor, whose terms it doesn't
// know. Therefore its first term is the current one.
func (c *Clock) TermClock() election.TermClock {
	current := c.CurrentTerm()
	return election.TermClock{AtBoot: current, Boot: c.terms.Due(current), TicksPerTerm: c.terms.TicksPerTerm}
}

// CurrentTerm returns the current term.
func (c *Clock) CurrentTerm() election.Term { return c.terms.Ceiling(c.Now()) }

func boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("cannot read CLOCK_BOOTTIME: " + err.Error()) // Linux has it since 2.6.39.
	}
	return time.Duration(now.Nano())
}
