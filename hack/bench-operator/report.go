package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// Report is all that was measured in one run.
type Report struct {
	benchmark.Machine

	Lease   *Lease   `json:"lease,omitempty"`
	Scale   *Scale   `json:"scale,omitempty"`
	Cluster *Cluster `json:"cluster,omitempty"`
}

// Failures is how much didn't happen in time.
func (r *Report) Failures() (count int) {
	if r.Lease != nil {
		count += len(r.Lease.Failures)
	}
	if r.Scale != nil {
		count += len(r.Scale.Failures)
	}
	if r.Cluster != nil {
		count += len(r.Cluster.Failures)
	}
	return count
}

// Print writes the report as a table, and under it the goals.
func (r *Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "%s\n\n", r.Machine)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "part\twhat, in ms\trounds\tmedian\tp99\tmax\t")
	if r.Lease != nil {
		row(table, leasePart, "kill -9 -> the next leads", r.Lease.Kills)
	}
	if r.Scale != nil {
		row(table, scalePart, "report -> status seen", r.Scale.Elections.Lag)
	}
	if r.Cluster != nil {
		r.Cluster.Kills.rows(table, "kill -9 of the agent")
		r.Cluster.Deletions.rows(table, "pod deleted by force")
		r.Cluster.HandOvers.rows(table, "pod deleted")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	r.Lease.print(out)
	r.Scale.print(out)
	r.Cluster.print(out)
	return nil
}

func row(table io.Writer, part, what string, s *benchmark.Series) {
	if s != nil {
		fmt.Fprintf(table, "%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t\n", part, what, s.Rounds, s.Median, s.P99, s.Max)
	}
}

func (l *Lease) print(out io.Writer) {
	if l == nil {
		return
	}
	fmt.Fprintf(out, "\nlease: %d candidates, idle for %.0f s: %.1f writes and %.1f reads a minute\n", l.Candidates, l.Seconds, l.Writes, l.Reads)
	verdicts(out, leasePart, nil, l.Failures)
}

func (s *Scale) print(out io.Writer) {
	if s == nil {
		return
	}
	election := "off"
	if s.LeaderElection {
		election = "on"
	}
	fmt.Fprintf(out, "\nscale: %d groups of %d on one manager, leader election %s, %d other pods\n", s.Groups, s.Members, election, s.Bystanders)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(what, format string, values ...any) {
		fmt.Fprintf(table, "  %s\t"+format+"\n", append([]any{what}, values...)...)
	}
	line("manager's memory", "%.0f MiB with no groups, %.0f with all, %.0f after the elections, %.0f at most", s.Empty, s.Resident, s.End, s.Peak)
	line("of each stream", "%.1f KiB with its share of pods and groups; %.0f bytes sent until current", s.StreamMemory, s.StreamBytes)
	line("start -> every status complete", "%.1f s, %.1f s of CPU", s.Start, s.StartCPU)
	e := s.Elections
	line("elections", "%d in %.0f s, %d left out since the last of the same group hadn't been seen", e.Count, e.Seconds, e.Skipped)
	line("requests per election", "%s; %.0f bytes over streams", e.Requests, e.Bytes)
	line("  of everybody", "%s", e.All)
	line("CPU meanwhile, % of a core", "%s", Requests(e.CPU))
	line("  for each election, in ms", "%s", Requests(e.Cost))
	line("idle", "%.0f s: %s; %.2f %% of a core, %.0f bytes a minute on each stream", s.Idle.Seconds, s.Idle.Requests, s.Idle.CPU, s.Idle.Bytes)
	line("restart -> all agents heard", "%.1f s; %s; %d changes of groups", s.Restart.Heard, s.Restart.Requests, s.Restart.Changes)
	if err := table.Flush(); err != nil {
		return // Whoever reads it has gone.
	}
	verdicts(out, scalePart, s.Goals, s.Failures)
}

func (b *Blows) rows(table io.Writer, what string) {
	row(table, clusterPart, what+" -> the next is elected", b.Elected)
	row(table, clusterPart, "  elected -> status seen", b.Status)
	row(table, clusterPart, "  elected -> role label seen", b.Label)
	row(table, clusterPart, "  elected -> EndpointSlice seen", b.Endpoint)
}

func (c *Cluster) print(out io.Writer) {
	if c == nil {
		return
	}
	fmt.Fprintf(out, "\ncluster: %d nodes; %.1f s from the last pod Ready to the full table; idle for %.0f s: %s\n", c.Nodes, c.Up, c.Idle.Seconds, c.Idle.Requests)
	verdicts(out, clusterPart, c.Goals, c.Failures)
}

func verdicts(out io.Writer, part string, goals []benchmark.Goal, failures []string) {
	for _, goal := range goals {
		fmt.Fprintf(out, "%s: %s\n", part, goal)
	}
	for _, failure := range failures {
		fmt.Fprintf(out, "%s: FAILED: %s\n", part, failure)
	}
}
