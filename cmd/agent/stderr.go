package main

import (
	"io"
	"log"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/agent/asynclog"
)

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
// The flag for that belongs to the open file, which other processes may share. Therefore
// reopenPipe opens the pipe again. For other kinds of files, or if the process may not
// open the pipe, it changes nothing.
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

// microseconds formats times with microseconds: an election takes about a thousand of
// them.
func microseconds(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		a.Value = slog.StringValue(a.Value.Time().UTC().Format("2006-01-02T15:04:05.000000Z"))
	}
	return a
}

// droppedLines returns the function that counts the lines that a writer has dropped, or
// nil if it drops none.
func droppedLines(w io.Writer) func() uint64 {
	if a, ok := w.(*asynclog.Writer); ok {
		return a.Dropped
	}
	return nil
}
