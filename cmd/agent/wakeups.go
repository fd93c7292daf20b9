package main

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// timerSlack is the number of nanoseconds by which the kernel may delay the timers of
// this process. The timeouts of elections are milliseconds.
const timerSlack = 1_000_000

// reduceWakeups halves the CPU time of an idle agent, which sends or receives ten
// heartbeats per second. A heartbeat needs so little work that the cost is dominated by
// the number of thread wakeups. There are two measures:
//
//   - With GOMAXPROCS=1, all goroutines run on one thread.
//   - With more timer slack, the monitor thread of the Go runtime, which sleeps for 20 µs
//     at a time while the process is active, mostly sleeps until the process is idle
//     again. A thread inherits the slack when it is created, and the monitor thread is
//     created before main. So the program executes itself again in the same process.
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
		// Exec returns only if it failed. The agent then runs with the default slack.
		_ = unix.Exec(program, os.Args, os.Environ())
	}
}
