package benchmark

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// The forms that a report can be had in.
const (
	table  = "table"
	inJSON = "json"
)

// CheckFormat refuses what isn't one of the forms that a report can be had in.
func CheckFormat(format string) error {
	if format != table && format != inJSON {
		return fmt.Errorf("-o %s: choose table or json", format)
	}
	return nil
}

// Report is all that a benchmark has measured.
type Report interface {
	// Print writes it for people.
	Print(to io.Writer) error
	// Failures is how much of what was tried didn't happen in time.
	Failures() int
}

// Write writes a report in one of its forms. It fails if something didn't
// happen in time.
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
		return fmt.Errorf("%d of what was tried didn't happen in time, see above", failed)
	}
	return nil
}

// Wait lets time pass: what is measured is what happens meanwhile.
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
