package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A small process speeds up failover: the kernel takes longer to end a larger one, and only then do its peers see their connections end.
const (
	// gcPercent makes the garbage collector run more often than by default.
	gcPercent = 50
	// startTime is the time after which an agent needs little of what it has needed for its start.
	startTime = 2 * time.Second
)

func reduceMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	time.AfterFunc(startTime, func() { _ = unmapProgram() }) // If it fails, the process is only larger.
}

// unmapProgram lets the kernel unmap the program's code and constants. What is used later is mapped again, from the page cache, at the
// price of a page fault for each 64 KiB.
func unmapProgram() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var access string
		if !strings.HasSuffix(line, " "+program+"\n") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &access); err != nil {
			return err
		}
		if strings.Contains(access, "w") { // The kernel would also forget what was written.
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}

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
