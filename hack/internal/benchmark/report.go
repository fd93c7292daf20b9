package benchmark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Report contains the results of a benchmark.
type Report interface {
	// Print writes the report as text.
	Print(to io.Writer) error
	// Failures returns the number of rounds that timed out.
	Failures() int
}

// Main runs the command of a benchmark until it ends or a signal interrupts it, and exits.
func Main(root *cobra.Command) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root.SilenceUsage, root.SilenceErrors = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	err := root.ExecuteContext(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// Print writes a report. It returns an error if rounds timed out.
func Print(to io.Writer, report Report) error {
	var failed error
	if count := report.Failures(); count > 0 {
		failed = fmt.Errorf("%d rounds timed out, see the report", count)
	}
	return errors.Join(report.Print(to), failed)
}

// Wait sleeps for a period, or until ctx is done. Benchmarks call it while they measure a system that runs on its own.
func Wait(ctx context.Context, period time.Duration) error {
	timer := time.NewTimer(period)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
