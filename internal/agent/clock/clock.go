// Package clock provides the time of an agent: ticks for the election machines, and
// terms.
//
// A tick is a nanosecond of CLOCK_BOOTTIME since the process started. Unlike the
// monotonic clock of package time, CLOCK_BOOTTIME advances while the machine is
// suspended: an agent that resumes must see that its lease has expired. Adjustments
// of the wall clock don't affect it.
//
// The wall clock is for election.TermClock: an epoch is 40 ms long, and epoch 0 is the
// beginning of 2026. The wall clock is read when the process starts, and every few
// seconds: see Correct.
//
// # Wrong wall clocks
//
// A wrong wall clock doesn't affect safety, unless it goes back over a restart without a
// memory of grants, or in the seconds before, which the agent hasn't noticed then. If it
// is wrong by more than half a minute, peers refuse to connect. The agent reports that,
// and connects soon after the wall clock was corrected.
//
// # What is not guaranteed
//
// A virtual machine that its host suspends may not notice the suspension.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Clock is a running clock. Its first tick is 1, because 0 means no time.
type Clock struct {
	// elapsed returns the reading of CLOCK_BOOTTIME.
	elapsed func() time.Duration
	start   time.Duration
	terms   atomic.Pointer[election.TermClock]
	// corrections counts the calls of Correct that returned true.
	corrections atomic.Uint64
	// deviates is set if the last reading of the wall clock differed from the expected
	// one. It belongs to the caller of Correct.
	deviates bool
}

// New starts a clock. wall is the current time of day.
func New(wall time.Time) *Clock {
	last := &reading{started: time.Now()}
	return NewFrom(wall, last.boottime)
}

// NewFrom starts a clock that reads another one than CLOCK_BOOTTIME.
func NewFrom(wall time.Time, elapsed func() time.Duration) *Clock {
	c := &Clock{elapsed: elapsed, start: elapsed() - 1}
	c.terms.Store(&election.TermClock{
		AtBoot: epochAt(wall), Boot: c.Now(), TicksPerEpoch: election.Tick(control.EpochDuration),
	})
	return c
}

// tolerance is the difference from the expected time of day up to which a wall clock
// counts as unchanged. NTP adjusts smaller ones gradually.
const tolerance = election.Epoch(time.Second / control.EpochDuration)

// Correct compares the clock with the current time of day. If two readings in a row
// differ from the expected one by more than a second, it adopts the time of day and
// returns true: for example, NTP has set the wall clock, or the machine was suspended.
// Correct must not be called concurrently.
func (c *Clock) Correct(wall time.Time) bool {
	reading, now := epochAt(wall), c.Now()
	expected := c.terms.Load().Ceiling(now).Epoch()
	before := c.deviates
	c.deviates = max(reading, expected)-min(reading, expected) > tolerance
	if !before || !c.deviates {
		return false
	}
	corrected := c.terms.Load().Corrected(reading, now)
	c.terms.Store(&corrected)
	c.corrections.Add(1)
	c.deviates = false
	return true
}

// Corrections returns how often the clock was corrected. What started while it changes may
// use the clock from before.
func (c *Clock) Corrections() uint64 { return c.corrections.Load() }

// Now returns the current tick.
func (c *Clock) Now() election.Tick { return election.Tick(c.elapsed() - c.start) }

// Origin returns the reading of CLOCK_BOOTTIME at tick 0. With it, ticks of the processes
// on one machine can be compared.
func (c *Clock) Origin() time.Duration { return c.start }

// Until returns the duration until a tick.
func (c *Clock) Until(at election.Tick) time.Duration { return time.Duration(at - c.Now()) }

// TermClock returns the term clock of a machine that starts now. A machine that
// doesn't start with the process may have a predecessor, whose terms it doesn't
// know. Therefore its first epoch is the current one.
func (c *Clock) TermClock() election.TermClock {
	current := c.CurrentTerm()
	terms := c.terms.Load()
	return election.TermClock{AtBoot: current.Epoch(), Boot: terms.Due(current), TicksPerEpoch: terms.TicksPerEpoch}
}

// CurrentTerm returns the highest term of the current epoch.
func (c *Clock) CurrentTerm() election.Term { return c.terms.Load().Ceiling(c.Now()) }

func epochAt(wall time.Time) election.Epoch {
	return election.Epoch(control.EpochAt(wall)) //nolint:gosec // Epochs aren't negative.
}

// reading is a reading of CLOCK_BOOTTIME, from which the readings shortly after are derived.
// An agent with many groups reads the clock a hundred times for each heartbeat. Go has no
// way to read CLOCK_BOOTTIME without a system call, unlike CLOCK_MONOTONIC.
//
// The clocks differ only by the time for which the machine was suspended. That a machine
// is suspended, and the process runs again, within validity of CLOCK_MONOTONIC is
// impossible: that clock advances while the kernel stops and starts processes and devices.
type reading struct {
	started time.Time

	mu sync.Mutex
	// at is the time since started by CLOCK_MONOTONIC, just after boot was read.
	at, boot time.Duration
}

const (
	validity = 100 * time.Microsecond
	// maxDelay bounds the time for which reading both clocks may take. A process that was
	// paused in between would lag behind by the duration of the pause.
	maxDelay = 10 * time.Microsecond
)

// boottime returns the reading of CLOCK_BOOTTIME. It may lag behind by maxDelay, and never
// decreases.
func (r *reading) boottime() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := time.Since(r.started)
	if r.boot != 0 && before-r.at < validity {
		return r.boot + before - r.at
	}
	boot := Boottime()
	r.boot, r.at = boot, time.Since(r.started)
	if r.at-before > maxDelay {
		r.boot = 0
	}
	return boot
}

// Boottime returns the reading of CLOCK_BOOTTIME. It makes the system call without the scheduler of the Go runtime: it
// never blocks, and the scheduler would wake its monitor thread.
func Boottime() time.Duration {
	var now unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME,
		uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		panic("cannot read CLOCK_BOOTTIME: " + errno.Error()) // Linux has it since 2.6.39.
	}
	return time.Duration(now.Nano())
}
