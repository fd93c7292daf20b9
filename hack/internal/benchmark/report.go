package benchmark

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Output formats.
const (
	table  = "table"
	inJSON = "json"
)

// CheckFormat returns an error if format isn't an output format.
func CheckFormat(format string) error {
	if format != table && format != inJSON {
		return fmt.Errorf("-o must be table or json, got %s", format)
	}
	return nil
}

// Report contains all results of a benchmark.
type Report interface {
	// Print writes the report as text.
	Print(to io.Writer) error
	// Failures returns the number of rounds that timed out.
	Failures() int
}

// Write writes a report in an output format. It returns an error if rounds timed out.
func Write(to io.Writer, format string, report Report) error {
	if format == inJSON {
		encoder := json.NewEncoder(to)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(report); err != nil {
			return err
		}
	} else if err := report.Print(to); err != nil {
		return err
	}
	if failed := report.Failures(); failed > 0 {
		return fmt.Errorf("%d rounds timed out, see the report", failed)
	}
	return nil
}

// Wait sleeps for a period, or until ctx is done. Benchmarks call it while they measure
// a system that runs on its own.
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
