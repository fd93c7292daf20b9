package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	_ "embed"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// Growth is the report of how failover and idle cost grow.
type Growth struct {
	*Report
	Members   []MemberGrowth
	Operators []OperatorGrowth
}

// MemberGrowth contains the results of a set with a number of candidates.
type MemberGrowth struct {
	Idle
	Took *benchmark.Series
}

// OperatorGrowth contains the results of bench-operator with a number of groups: memory in MiB, and times in seconds.
type OperatorGrowth struct {
	Groups, Members        int
	Empty, Resident, Start float64
	Restart                struct{ Connected float64 }
	Elections              struct {
		Lag  benchmark.Series // in milliseconds
		Cost map[string]float64
	}
}

// memberCounts are the numbers of candidates of a group, up to the most that a group may have, and groupCounts those of
// groups with three candidates. operatorCounts are those of groups of an operator, with five members each. More need
// more open files than many machines permit.
var (
	memberCounts   = []int{3, 10, 30, 60, 100}
	groupCounts    = []int{1, 3, 10, 30, manyGroups}
	operatorCounts = []int{10, 100, 1000, 3000}
)

// growth measures how failover and idle cost of some systems grow with the members of a group and with the groups of a
// process.
func (r *runner) growth(ctx context.Context) error {
	growth := Growth{Report: r.report}
	for _, groups := range operatorCounts {
		result, err := r.operatorWith(ctx, groups)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.fail("An operator with %d groups: bench-operator failed: %v.", groups, err)
			continue
		}
		growth.Operators = append(growth.Operators, result)
	}
	for _, of := range r.systems {
		for _, size := range memberCounts {
			result, err := r.growthOf(ctx, of, size)
			if errors.Is(err, errLate) {
				r.fail("%s with %d members: they don't agree within %s.", of.title, size, settleLimit)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s with %d members: %w", of.title, size, err)
			}
			growth.Members = append(growth.Members, result)
			r.printf("%s with %d members: median %s, CPU %.2f %%, %.1f MiB", of.title, size, duration(result.Took.Median),
				result.CPU, result.Resident)
		}
		for _, groups := range groupCounts {
			if err := r.idleWith(ctx, []system{of}, groups); err != nil {
				return err
			}
		}
	}
	r.report.LoadAfter = loadAverage()
	return writeReport(r.options.output, growthMarkdown, growth, nil)
}

// The manifest's memory suffices for manifestGroups. With more groups, GOMEMLIMIT is manyGroupsMemory.
const (
	manifestGroups   = 1000
	manyGroupsMemory = "800MiB"
)

// operatorWith measures an operator with a number of groups, by the benchmark for that.
func (r *runner) operatorWith(ctx context.Context, groups int) (result OperatorGrowth, err error) {
	r.printf("an operator with %d groups", groups)
	arguments := []string{"--json", "--groups", strconv.Itoa(groups), "--rate", "20", "--elections", "15s", "--idle", "5s"}
	if groups > manifestGroups {
		arguments = append(arguments, "--memory-limit", manyGroupsMemory)
	}
	command := exec.CommandContext(ctx, "bin/bench-operator", arguments...) //nolint:gosec // of constants
	command.Stderr = r.progress
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	output, err := command.Output()
	if err != nil {
		return result, err
	}
	return result, json.Unmarshal(output, &result)
}

func (r *runner) growthOf(ctx context.Context, of system, size int) (result MemberGrowth, err error) {
	if result.Took, err = r.failoversWith(ctx, of, size); err != nil {
		return result, err
	}
	s, err := r.newSet(ctx, of, size, 1, 0)
	if err != nil {
		return result, err
	}
	defer s.stop()
	if _, err := s.settle(ctx); err != nil {
		return result, err
	}
	if err := benchmark.Wait(ctx, r.options.idle); err != nil {
		return result, err
	}
	if err := r.observeIdle(ctx, []*set{s}, 1); err != nil {
		return result, err
	}
	last := len(r.report.Idle) - 1
	result.Idle = r.report.Idle[last]
	r.report.Idle = r.report.Idle[:last]
	return result, nil
}

// failoversWith kills the leader of a number of candidates in each round.
func (r *runner) failoversWith(ctx context.Context, of system, size int) (*benchmark.Series, error) {
	s, err := r.newSet(ctx, of, size, 1, slowPoll)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	var all []time.Duration
	for range r.options.rounds {
		o, err := s.round(ctx, faults[0])
		if err != nil {
			return nil, err
		}
		if o.late {
			return nil, fmt.Errorf("no agreement within %s", of.limit)
		}
		all = append(all, o.took)
	}
	return benchmark.NewSeries(all), nil
}

// quantity is something that grows.
type quantity struct {
	System, Name string
	By           []int
	Values       []string
	Exponent     float64
}

// grow returns a quantity with the values of some results.
func grow[T any](name, format string, results []T, by func(T) int, value func(T) float64) quantity {
	q := quantity{Name: name}
	var x, y []float64
	for _, result := range results {
		q.By = append(q.By, by(result))
		q.Values = append(q.Values, fmt.Sprintf(format, value(result)))
		x, y = append(x, float64(by(result))), append(y, value(result))
	}
	q.Exponent = benchmark.Exponent(x, y)
	return q
}

// ByMembers returns what grows with the members of a group.
func (g Growth) ByMembers() (all []quantity) {
	members := func(m MemberGrowth) int { return m.Members }
	for _, name := range g.names() {
		of := slices.DeleteFunc(slices.Clone(g.Members), func(m MemberGrowth) bool { return m.System != name })
		all = append(all, named(name,
			grow("failover, median, ms", "%.1f", of, members, func(m MemberGrowth) float64 { return m.Took.Median }),
			grow("failover, maximum, ms", "%.1f", of, members, func(m MemberGrowth) float64 { return m.Took.Max }),
			grow("CPU of all members, % of a core", "%.2f", of, members,
				func(m MemberGrowth) float64 { return m.CPU * float64(m.Members) }),
			grow("packets/s of all members", "%.0f", of, members,
				func(m MemberGrowth) float64 { return m.Packets * float64(m.Members) }),
			grow("memory of a member, MiB", "%.1f", of, members, func(m MemberGrowth) float64 { return m.Resident }),
		)...)
	}
	return all
}

// ByGroups returns what grows with the groups of a process.
func (g Growth) ByGroups() (all []quantity) {
	groups := func(i Idle) int { return i.Groups }
	for _, name := range g.names() {
		of := slices.DeleteFunc(slices.Clone(g.Idle), func(i Idle) bool { return i.System != name })
		if len(of) < 2 {
			continue
		}
		all = append(all, named(name,
			grow("CPU of a member, % of a core", "%.2f", of, groups, func(i Idle) float64 { return i.CPU }),
			grow("packets/s of a member", "%.0f", of, groups, func(i Idle) float64 { return i.Packets }),
			grow("API requests/s of a member", "%.2f", of, groups, func(i Idle) float64 { return i.Requests }),
			grow("memory of a member, MiB", "%.1f", of, groups, func(i Idle) float64 { return i.Resident }),
		)...)
	}
	return all
}

// ByOperators returns what grows with the groups of an operator.
func (g Growth) ByOperators() []quantity {
	groups := func(o OperatorGrowth) int { return o.Groups }
	return named("",
		grow("memory beyond that without groups, MiB", "%.1f", g.Operators, groups,
			func(o OperatorGrowth) float64 { return o.Resident - o.Empty }),
		grow("first start until all groups have a status, s", "%.1f", g.Operators, groups,
			func(o OperatorGrowth) float64 { return o.Start }),
		grow("restart until all agents are connected, s", "%.1f", g.Operators, groups,
			func(o OperatorGrowth) float64 { return o.Restart.Connected }),
		grow("election until the status shows it, median, ms", "%.1f", g.Operators, groups,
			func(o OperatorGrowth) float64 { return o.Elections.Lag.Median }),
		grow("election until the status shows it, p99, ms", "%.1f", g.Operators, groups,
			func(o OperatorGrowth) float64 { return o.Elections.Lag.P99 }),
	)
}

func named(system string, all ...quantity) []quantity {
	for i := range all {
		all[i].System = system
	}
	return slices.DeleteFunc(all, func(q quantity) bool { return math.IsNaN(q.Exponent) })
}

func (g Growth) names() []string {
	return slices.DeleteFunc(allNames(), func(name string) bool {
		return !slices.ContainsFunc(g.Members, func(m MemberGrowth) bool { return m.System == name })
	})
}

//go:embed growth.md.tmpl
var growthMarkdown string
