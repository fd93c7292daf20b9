package client

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// The kernel's constants for CLOCK_BOOTTIME and timerfd_settime(2), which package syscall lacks.
const (
	clockBoottime = 7
	timerAbsolute = 1
)

// newLeaseClock returns a clock that advances while the machine is suspended.
func newLeaseClock() leaseClock {
	if _, err := boottime(); err != nil {
		return monotonicClock()
	}
	return leaseClock{now: mustBoottime, newTimer: newBootTimer}
}

func boottime() (time.Duration, error) {
	var now syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime,
		uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		return 0, errno
	}
	return time.Duration(now.Nano()), nil
}

// mustBoottime panics if the kernel no longer provides the clock. It did so before.
func mustBoottime() time.Duration {
	now, err := boottime()
	if err != nil {
		panic("cannot read CLOCK_BOOTTIME: " + err.Error())
	}
	return now
}

// bootTimer is a timer of the kernel. A timer of package time would stop with the machine,
// and fire late by the time for which the machine was suspended.
type bootTimer struct {
	fd   uintptr
	file *os.File
	f    func()
}

func newBootTimer(f func()) leaseTimer {
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockBoottime, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 { // For example, there are too many open files.
		return newMonotonicTimer(mustBoottime, f)
	}
	t := &bootTimer{fd: fd, file: os.NewFile(fd, "lease timer"), f: f}
	if !isPolled(t.file) {
		t.stop()
		return newMonotonicTimer(mustBoottime, f)
	}
	go t.run()
	return t
}

// isPolled reports whether the runtime waits for the file by epoll. That fails for example
// at the limit of fs.epoll.max_user_watches; a read would then return at once.
func isPolled(file *os.File) bool {
	return !errors.Is(file.SetReadDeadline(time.Time{}), os.ErrNoDeadline)
}

// run calls the function whenever the timer expires, until it is stopped.
func (t *bootTimer) run() {
	expirations := make([]byte, 8)
	for {
		if _, err := t.file.Read(expirations); err != nil {
			return
		}
		t.f()
	}
}

func (t *bootTimer) set(at time.Duration) {
	// The first field is the interval of a periodic timer. A time of 0 would disarm it.
	setting := [2]syscall.Timespec{1: syscall.NsecToTimespec(max(1, int64(at)))}
	_, _, errno := syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, t.fd, timerAbsolute,
		uintptr(unsafe.Pointer(&setting)), 0, 0, 0)
	if errno != 0 {
		t.f() // Better too early than never.
	}
}

func (t *bootTimer) stop() { _ = t.file.Close() } // This ends run.
