package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// Report contains the results of one run.
type Report struct {
	Lease   *Lease
	Scale   *Scale
	Cluster *Cluster
}

// Failures returns the number of rounds that timed out.
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
	if r.Cluster != nil {
		r.Cluster.Kills.rows(table, "kill -9 of the agent")
		r.Cluster.Deletions.rows(table, "forced deletion of the pod")
		r.Cluster.HandOvers.rows(table, "deletion of the pod")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	r.Lease.print(out)
	r.Scale.print(out)
	r.Cluster.print(out)
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
	election := "off"
	if s.LeaderElection {
		election = "on"
	}
	fmt.Fprintf(out, "\nscale: %d groups of %d on one manager, leader election %s, %d other pods\n", s.Groups, s.Members, election, s.Bystanders)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, values ...any) {
		fmt.Fprintf(table, "  %s\t"+format+"\n", append([]any{name}, values...)...)
	}
	line("memory of the manager", "%.0f MiB without groups, %.0f with all groups, %.0f after the elections, %.0f at most", s.Empty, s.Resident, s.End, s.Peak)
	line("cost of a stream", "%.1f KiB of memory with its share of pods and groups; %.0f bytes until up to date", s.StreamMemory, s.StreamBytes)
	line("start until every status complete", "%.1f s, %.1f s of CPU", s.Start, s.StartCPU)
	e := s.Elections
	line("elections", "%d in %.0f s; %d skipped because the status didn't show the previous election of the group", e.Count, e.Seconds, e.Skipped)
	line("manager's requests per election", "%s; %.0f bytes over streams", e.Requests, e.Bytes)
	line("all requests per election", "%s", e.All)
	line("CPU during elections, % of a core", "%s", Requests(e.CPU))
	line("CPU per election, in ms", "%s", Requests(e.Cost))
	line("idle", "%.0f s: %s; %.2f %% of a core; %.0f bytes per minute and stream", s.Idle.Seconds, s.Idle.Requests, s.Idle.CPU, s.Idle.Bytes)
	line("restart until all agents connected", "%.1f s; %s; %d changes of groups", s.Restart.Connected, s.Restart.Requests, s.Restart.Changes)
	if err := table.Flush(); err != nil {
		return // Standard output is closed.
	}
	printGoals(out, scalePart, s.Goals, s.Failures)
}

func (f *Failovers) rows(table io.Writer, fault string) {
	row(table, clusterPart, fault+" until the next election", f.Elected)
	row(table, clusterPart, "  election until status visible", f.Status)
	row(table, clusterPart, "  election until role label visible", f.Label)
	row(table, clusterPart, "  election until EndpointSlice visible", f.Endpoint)
}

func (c *Cluster) print(out io.Writer) {
	if c == nil {
		return
	}
	fmt.Fprintf(out, "\ncluster: %d nodes; %.1f s from the last pod Ready until the status is complete; requests while idle for %.0f s: %s\n", c.Nodes, c.Up, c.Idle.Seconds, c.Idle.Requests)
	printGoals(out, clusterPart, c.Goals, c.Failures)
}

func printGoals(out io.Writer, part string, goals []benchmark.Goal, failures []string) {
	for _, goal := range goals {
		fmt.Fprintf(out, "%s: %s\n", part, goal)
	}
	for _, failure := range failures {
		fmt.Fprintf(out, "%s: FAILED: %s\n", part, failure)
	}
}
