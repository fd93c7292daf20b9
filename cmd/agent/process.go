package main

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/agent/asynclog"
)

// A small process speeds up failover: the kernel takes longer to end a larger one, and only then do its peers see their
// connections end.
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

// unmapProgram lets the kernel unmap the program's code and constants. What is used later is mapped again, from the
// page cache, at the price of a page fault for each 64 KiB.
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

// reduceWakeups halves the CPU time of an idle agent, which sends or receives ten heartbeats per second. A heartbeat
// needs so little work that the cost is dominated by the number of thread wakeups. There are two measures:
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

// flushTimeout bounds how long the end of the process waits for a reader of stderr.
const flushTimeout = time.Second

// writeLog returns a writer to stderr that never blocks, for all that the agent writes
// there. The log package writes to it, too: net/http uses that for errors of a server.
//
// The Go runtime writes to stderr directly before it ends a process that panicked.
func writeLog(stderr *os.File) *asynclog.Writer {
	w := asynclog.New(stderr)
	log.SetOutput(w)
	return w
}

// reopenPipe makes writes to stderr fail, for this process only, if stderr is a pipe that
// is full. Otherwise, a process that panics could wait for the reader before it ends,
// while its connections remain open. The returned file waits until it can write.
//
// The flag for that belongs to the open file, which other processes may share. Therefore reopenPipe opens the pipe
// again. For other kinds of files, or if the process may not open the pipe, it changes nothing.
func reopenPipe() *os.File {
	const stderr = 2
	var stat unix.Stat_t
	if err := unix.Fstat(stderr, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return os.Stderr
	}
	reopened, err := unix.Open("/proc/self/fd/2", unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.Stderr
	}
	if err := unix.Dup3(reopened, stderr, 0); err != nil {
		_ = unix.Close(reopened) // Nothing was written to it.
		return os.Stderr
	}
	return os.NewFile(uintptr(reopened), os.Stderr.Name())
}

func logger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: microseconds}))
}

func level(verbose bool) slog.Level {
	if verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// microseconds formats times with microseconds: an election takes about a thousand of them.
func microseconds(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		a.Value = slog.StringValue(a.Value.Time().UTC().Format("2006-01-02T15:04:05.000000Z"))
	}
	return a
}

// droppedLines returns the function that counts the lines that a writer has dropped, or nil if it drops none.
func droppedLines(w io.Writer) func() uint64 {
	if a, ok := w.(*asynclog.Writer); ok {
		return a.Dropped
	}
	return nil
}
