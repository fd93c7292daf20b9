package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// ErrInterrupted ends a run that the user interrupted.
var ErrInterrupted = errors.New("interrupted")

// UntilInterrupted returns a context that ends when the user interrupts the command, for commands that have something
// to undo or to say then. That includes the end of the terminal (SIGHUP), unless nohup has excluded it. And the end of
// the reader of the output, which sends SIGPIPE, must not end the process: output.Printer ends the context.
func UntilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	// A channel rather than signal.Ignore, which programs that the command starts would inherit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signal.NotifyContext(ctx, signals...)
}
