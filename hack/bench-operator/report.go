package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// Failures returns the number of elections that no status has shown in time.
func (s *Scale) Failures() int { return len(s.Missed) }

// Print writes the results as a table, followed by the goals.
func (s *Scale) Print(out io.Writer) error {
	fmt.Fprintf(out, "%s\n\n", benchmark.Machine())
	fmt.Fprintf(out, "%d groups of %d on one manager\n", s.Groups, s.Members)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, values ...any) {
		fmt.Fprintf(table, "  %s\t"+format+"\n", append([]any{name}, values...)...)
	}
	line("memory of the manager", "%.0f MiB without groups, %.0f with all groups, %.0f at most",
		s.Empty, s.Resident, s.Peak)
	line("memory for each agent", "%.1f KiB", s.StreamMemory)
	line("start until every status complete", "%.1f s", s.Start)
	e := s.Elections
	if lag := e.Lag; lag != nil {
		line("agent's report until status visible", "median %.2f ms, p99 %.2f, max %.2f of %d", lag.Median,
			lag.P99, lag.Max, lag.Rounds)
	}
	line("elections", "%d in %.0f s; %d skipped because the status didn't show the previous election of the group",
		e.Count, e.Seconds, e.Skipped)
	line("manager's requests per election", "%s", e.Requests)
	line("CPU per election, in ms", "%s", e.Cost)
	line("idle", "%.0f s: %s", s.Idle.Seconds, s.Idle.Requests)
	line("restart until all agents connected", "%.1f s; %s; %d changes of groups", s.Restart.Connected,
		s.Restart.Requests, s.Restart.Changes)
	if err := table.Flush(); err != nil {
		return err
	}
	for _, goal := range s.Goals {
		fmt.Fprintln(out, goal)
	}
	for _, failure := range s.Missed {
		fmt.Fprintln(out, "FAILED:", failure)
	}
	return nil
}
