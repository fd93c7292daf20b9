// Package clock is the agent's time: ticks for the Machines, and terms.
//
// A tick is a nanosecond since the process started, on CLOCK_BOOTTIME. Unlike
// the clock of package time, that one goes on while the machine is suspended:
// who wakes up must see that its lease is over. Nothing that sets the wall
// clock moves it.
//
// The wall clock is read once, when the process starts, for election.TermClock:
// a term is a tenth of a second since 2026.
//
// What becomes of an agent whose wall clock is wrong when it starts: all stays
// safe. Up to a minute, the office waits until the slower clocks have come as far
// as the faster ones. Beyond that, the agent speaks of terms that make no sense
// to the others, who refuse them and elect one of themselves; one that is behind
// refuses theirs as well and knows no coordinator. It helps to set its clock and
// to start it again. Setting the clock of an agent that runs changes nothing.
//
// Not guaranteed: a virtual machine that its host suspends may not notice it.
package clock

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/election"
)

// TermDuration is how long a term lasts at least.
const TermDuration = 100 * time.Millisecond

// Clock is a running clock. Its first tick is 1: 0 is no moment.
type Clock struct {
	start time.Duration
	terms election.TermClock
}

// New starts a clock. wall is the time of day.
func New(wall time.Time) *Clock {
	c := &Clock{start: boottime() - 1}
	epoch := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	c.terms = election.TermClock{
		AtBoot: election.Term(max(0, wall.Sub(epoch)/TermDuration)), Boot: c.Now(), TicksPerTerm: election.Tick(TermDuration),
	}
	return c
}

// Now is the present moment.
func (c *Clock) Now() election.Tick { return election.Tick(boottime() - c.start) }

// Until is how long it takes until at.
func (c *Clock) Until(at election.Tick) time.Duration { return time.Duration(at - c.Now()) }

// TermClock is what a Machine reads terms from that starts now. One that starts
// later than the process may have had a predecessor, whose terms it doesn't know.
func (c *Clock) TermClock() election.TermClock {
	reading := c.CurrentTerm()
	return election.TermClock{AtBoot: reading, Boot: c.terms.Due(reading), TicksPerTerm: c.terms.TicksPerTerm}
}

// CurrentTerm is the term that the clock reads now.
func (c *Clock) CurrentTerm() election.Term { return c.terms.Ceiling(c.Now()) }

func boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("no CLOCK_BOOTTIME: " + err.Error()) // Linux has had it since 2.6.39.
	}
	return time.Duration(now.Nano())
}
