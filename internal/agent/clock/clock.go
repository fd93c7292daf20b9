// Package clock provides the time of an agent: ticks for the election machines.
//
// A tick is a nanosecond of CLOCK_BOOTTIME since the process started. Unlike the monotonic clock of package time,
// CLOCK_BOOTTIME advances while the machine is suspended: an agent that resumes must see that its lease has expired.
// The wall clock doesn't affect elections.
//
// # What is not guaranteed
//
// A virtual machine that its host suspends may not notice the suspension.
package clock

import (
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/election"
)

// Clock is a running clock. Its first tick is 1, because 0 means no time.
type Clock struct {
	// elapsed returns the reading of CLOCK_BOOTTIME.
	elapsed func() time.Duration
	start   time.Duration
}

// New starts a clock.
func New() *Clock {
	last := &reading{started: time.Now()}
	return NewFrom(last.boottime)
}

// NewFrom starts a clock that reads another one than CLOCK_BOOTTIME.
func NewFrom(elapsed func() time.Duration) *Clock {
	return &Clock{elapsed: elapsed, start: elapsed() - 1}
}

// Now returns the current tick.
func (c *Clock) Now() election.Tick { return election.Tick(c.elapsed() - c.start) }

// Origin returns the reading of CLOCK_BOOTTIME at tick 0. With it, ticks of the processes
// on one machine can be compared.
func (c *Clock) Origin() time.Duration { return c.start }

// Until returns the duration until a tick.
func (c *Clock) Until(at election.Tick) time.Duration { return time.Duration(at - c.Now()) }

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

// boottime returns the reading of CLOCK_BOOTTIME. It may lag behind by maxDelay, and never decreases.
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
