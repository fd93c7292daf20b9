package main

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// slack is by how many nanoseconds the kernel may delay what this process sleeps
// for. Elections wait for milliseconds.
const timerSlack = 1_000_000

// thrift makes an agent that idles, with a heartbeat ten times a second, use about
// half of what it would by default. It does next to nothing each time, so what
// counts is how often threads are woken:
//
//   - With one processor, goroutines hand over to each other on one thread.
//   - With more slack, the runtime's monitor, which sleeps for 20 µs at a time
//     whenever the process does something, mostly sleeps until that is over.
//     Threads inherit the slack when they are made, and the monitor is older than
//     main: so the program starts itself once more, as the same process.
func reduceWakeups() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	has, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || has >= timerSlack {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0); err != nil {
		return
	}
	if program, err := os.Executable(); err == nil {
		// This only comes back if it failed, and then all goes on as it is.
		_ = unix.Exec(program, os.Args, os.Environ())
	}
}
