package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// Report contains the results of one run.
type Report struct {
	Groups []*Group
	Idle   []*Idle
}

// Group contains the results of one group of agents.
type Group struct {
	Agents int
	Mode   string
	// Kills, HandOvers and Stops are nil if no round succeeded. Floor is nil in a large group.
	Kills, Floor, HandOvers, Stops *benchmark.Series
	// Peak is the highest resident memory, since their start, of the agents that run at the end, in MiB.
	Peak  float64
	Goals []benchmark.Goal
	// Failures are the rounds that timed out.
	Failures []string
}

// defaultHeartbeat is the default interval of heartbeats.
const defaultHeartbeat = 100 * time.Millisecond

// memoryLimit is the limit of the injected container, in MiB.
const memoryLimit = 64

// judge compares the results with the goals. There are goals for groups of 5, one for
// groups of 100, and one for all. Those for silence follow from the interval of heartbeats in milliseconds.
func (g *Group) judge(heartbeat int) {
	const small, large = 5, 100
	g.Goals = append(g.Goals, benchmark.AtMost("highest resident memory of an agent", "MiB", g.Peak, memoryLimit))
	if g.Agents == large && g.Kills != nil && g.Mode != "Strict" {
		g.Goals = append(g.Goals, benchmark.AtMost("failover after kill -9, median", "ms", g.Kills.Median, 25))
	}
	if g.Agents != small {
		return
	}
	if g.Kills != nil && g.Mode == "Strict" {
		g.Goals = append(g.Goals,
			benchmark.AtMost("failover after kill -9, maximum", "ms", g.Kills.Max, float64(5*heartbeat+5)))
	}
	if g.Kills != nil && g.Floor != nil && g.Mode != "Strict" {
		g.Goals = append(g.Goals,
			benchmark.AtMost("failover after kill -9, median", "times the floor", g.Kills.Median/g.Floor.Median, 1.5),
			benchmark.AtMost("failover after kill -9, p99", "times the median", g.Kills.P99/g.Kills.Median, 3))
	}
	if g.HandOvers != nil {
		g.Goals = append(g.Goals, benchmark.AtMost("hand-over without coordinator, median", "ms", g.HandOvers.Median, 1))
	}
	if g.Stops != nil {
		g.Goals = append(g.Goals, benchmark.AtMost("failover after SIGSTOP, p99", "ms", g.Stops.P99, float64(6*heartbeat)))
	}
}

// Failures returns the number of rounds that timed out.
func (r *Report) Failures() int {
	count := 0
	for _, group := range r.Groups {
		count += len(group.Failures)
	}
	return count
}

// Print writes the report as a table, followed by the goals.
func (r *Report) Print(out io.Writer) error {
	fmt.Fprintf(out, "%s\n\n", benchmark.Machine())
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(r.Groups) > 0 {
		fmt.Fprintln(table, "agents\tmode\tduration in ms\trounds\tmedian\tp99\tmax\tfailover/floor\t")
	}
	for _, g := range r.Groups {
		g.print(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, g := range r.Groups {
		for _, goal := range g.Goals {
			fmt.Fprintf(out, "%d agents, %s: %s\n", g.Agents, g.Mode, goal)
		}
		for _, failure := range g.Failures {
			fmt.Fprintf(out, "%d agents, %s: FAILED: %s\n", g.Agents, g.Mode, failure)
		}
	}
	for _, idle := range r.Idle {
		idle.print(out)
	}
	return nil
}

func (g *Group) print(table io.Writer) {
	for _, row := range []struct {
		name   string
		series *benchmark.Series
	}{
		{"failover: kill -9 until all agents know the next coordinator", g.Kills},
		{fmt.Sprintf("floor: kill -9 until %d witnesses have completed a request", g.Agents-1), g.Floor},
		{"hand-over: no coordinator", g.HandOvers},
		{"failover: SIGSTOP, then kill -9, until all agents know the next coordinator", g.Stops},
	} {
		if row.series == nil {
			continue
		}
		ratio := ""
		if g.Kills != nil && row.series == g.Floor {
			ratio = fmt.Sprintf("%.1f", g.Kills.Median/row.series.Median)
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t%s\t\n", g.Agents, g.Mode, row.name,
			row.series.Rounds, row.series.Median, row.series.P99, row.series.Max, ratio)
	}
}

func (i *Idle) print(out io.Writer) {
	fmt.Fprintf(out,
		"\nidle for %.0f s with %d peers, groups: %d: %.1f MiB resident; follower %.3f %% of a core, coordinator %.3f %%\n",
		i.Seconds, i.Peers, i.Groups, i.Resident, i.Follower, i.Coordinator)
	for _, goal := range i.Goals {
		fmt.Fprintf(out, "idle, groups: %d: %s\n", i.Groups, goal)
	}
}
