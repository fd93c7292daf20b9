package command

import (
	"os"
	ossignal "os/signal"
	"syscall"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestEndOfTerminalInterrupts: otherwise the process would end without undoing its fault.
func TestEndOfTerminalInterrupts(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT} {
		if signal == syscall.SIGHUP && ossignal.Ignored(signal) {
			continue // nohup runs the tests
		}
		ctx, stop := UntilInterrupted(t.Context())
		must.Succeed(t, syscall.Kill(os.Getpid(), signal))
		testwait.Until(t, signal.String()+" interrupts the command", func() bool { return ctx.Err() != nil })
		stop()
	}
}
