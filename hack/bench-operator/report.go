package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// Report contains the results of one run.
type Report struct {
	Lease *Lease
	Scale *Scale
}

// Failures returns the number of rounds that timed out.
func (r *Report) Failures() (count int) {
	if r.Lease != nil {
		count += len(r.Lease.Failures)
	}
	if r.Scale != nil {
		count += len(r.Scale.Failures)
	}
	return count
}

// Print writes the report as a table, followed by the other results and the goals.
func (r *Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "%s\n\n", benchmark.Machine())
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "part\tduration in ms\trounds\tmedian\tp99\tmax\t")
	if r.Lease != nil {
		row(table, leasePart, "kill -9 until another candidate leads", r.Lease.Kills)
	}
	if r.Scale != nil {
		row(table, scalePart, "agent's report until status visible", r.Scale.Elections.Lag)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	r.Lease.print(out)
	r.Scale.print(out)
	return nil
}

func row(table io.Writer, part, duration string, s *benchmark.Series) {
	if s != nil {
		fmt.Fprintf(table, "%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t\n", part, duration, s.Rounds, s.Median, s.P99, s.Max)
	}
}

func (l *Lease) print(out io.Writer) {
	if l == nil {
		return
	}
	fmt.Fprintf(out, "\nlease: %d candidates, idle for %.0f s: %.1f writes and %.1f reads per minute\n", l.Candidates, l.Seconds, l.Writes, l.Reads)
	printGoals(out, leasePart, nil, l.Failures)
}

func (s *Scale) print(out io.Writer) {
	if s == nil {
		return
	}
	fmt.Fprintf(out, "\nscale: %d groups of %d on one manager\n", s.Groups, s.Members)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, values ...any) {
		fmt.Fprintf(table, "  %s\t"+format+"\n", append([]any{name}, values...)...)
	}
	line("memory of the manager", "%.0f MiB without groups, %.0f with all groups, %.0f at most", s.Empty, s.Resident, s.Peak)
	line("memory for each agent", "%.1f KiB", s.StreamMemory)
	line("start until every status complete", "%.1f s", s.Start)
	e := s.Elections
	line("elections", "%d in %.0f s; %d skipped because the status didn't show the previous election of the group", e.Count, e.Seconds, e.Skipped)
	line("manager's requests per election", "%s", e.Requests)
	line("CPU per election, in ms", "%s", e.Cost)
	line("idle", "%.0f s: %s", s.Idle.Seconds, s.Idle.Requests)
	line("restart until all agents connected", "%.1f s; %s; %d changes of groups", s.Restart.Connected, s.Restart.Requests, s.Restart.Changes)
	if err := table.Flush(); err != nil {
		return // Standard output is closed.
	}
	printGoals(out, scalePart, s.Goals, s.Failures)
}

func printGoals(out io.Writer, part string, goals []benchmark.Goal, failures []string) {
	for _, goal := range goals {
		fmt.Fprintf(out, "%s: %s\n", part, goal)
	}
	for _, failure := range failures {
		fmt.Fprintf(out, "%s: FAILED: %s\n", part, failure)
	}
}
