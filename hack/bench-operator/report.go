package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/conclave-dev/conclave/internal/figures"
)

// Report is all that was measured in one run.
type Report struct {
	figures.Machine

	Lease *Lease `json:"lease,omitempty"`
}

func (r *Report) failures() (count int) {
	if r.Lease != nil {
		count += len(r.Lease.Failures)
	}
	return count
}

// print writes the report as a table, and under it the goals.
func (r *Report) print(out io.Writer) error {
	fmt.Fprintf(out, "%s\n\n", r.Machine)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "part\twhat, in ms\trounds\tmedian\tp99\tmax\t")
	if r.Lease != nil {
		row(table, leasePart, "kill -9 -> the next leads", r.Lease.Kills)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	r.Lease.print(out)
	return nil
}

func row(table io.Writer, part, what string, s *figures.Series) {
	if s != nil {
		fmt.Fprintf(table, "%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t\n", part, what, s.Rounds, s.Median, s.P99, s.Max)
	}
}

func (l *Lease) print(out io.Writer) {
	if l == nil {
		return
	}
	fmt.Fprintf(out, "\nlease: %d candidates, idle for %.0f s: %.1f writes and %.1f reads a minute\n", l.Candidates, l.Seconds, l.Writes, l.Reads)
	for _, failure := range l.Failures {
		fmt.Fprintf(out, "lease: FAILED: %s\n", failure)
	}
}
