package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/program"
)

// TestMain lets the test binary run the hidden commands that the benchmark starts as
// processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		main()
		return
	}
	os.Exit(m.Run())
}

// cancelAt cancels a context when the benchmark prints a text.
type cancelAt struct {
	text   string
	cancel context.CancelFunc
}

func (c cancelAt) Write(line []byte) (int, error) {
	if strings.Contains(string(line), c.text) {
		c.cancel()
	}
	return len(line), nil
}

func TestInterruptionKeepsEarlierResults(t *testing.T) {
	if err := program.DependOnProgram(t.Context(), "../..", "./cmd/agent"); err != nil {
		t.Fatal(err)
	}
	for text, groups := range map[string]int{"3 agents, Majority: starting": 1, "3 agents, Available: starting": 0} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		report, err := measure(ctx, &options{agents: []int{3}, modes: []string{"Available", "Majority"}, kills: 1}, cancelAt{text, cancel})
		cancel()
		switch {
		case !errors.Is(err, context.Canceled):
			t.Errorf("interrupted at %q: got error %v, want %v", text, err, context.Canceled)
		case len(report.Groups) != groups || groups > 0 && report.Groups[0].Kills == nil:
			t.Errorf("interrupted at %q: got report %+v, want the kills of %d groups", text, report, groups)
		}
		if err := report.Print(io.Discard); err != nil {
			t.Error(err)
		}
	}
}

func TestAllMeasurementsAreReported(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := program.DependOnProgram(ctx, "../..", "./cmd/agent"); err != nil {
		t.Fatal(err)
	}
	report, err := measure(ctx, &options{
		agents: []int{5}, modes: []string{"Majority"}, kills: 2, handOvers: 2, stops: 1, tls: true, trace: true, idle: time.Second, groups: []int{1, 2},
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if count := report.Failures(); count > 0 {
		t.Errorf("got %d failed rounds, want none: %v", count, report.Groups[0].Failures)
	}
	group := report.Groups[0]
	for name, series := range map[string]*benchmark.Series{"kill": group.Kills, "floor with one witness": group.FloorOne, "floor": group.Floor, "hand-over": group.HandOvers, "stop": group.Stops} {
		if series == nil {
			t.Errorf("got no series for %s", name)
		}
	}
	if group.Kills != nil && group.Kills.Rounds != 2 {
		t.Errorf("got %d kills, want 2", group.Kills.Rounds)
	}
	if p := group.Phases; p == nil || p.Noticed == nil || p.Granted == nil || p.Noticed.Median <= 0 || p.Granted.Median <= 0 {
		t.Errorf("got phases %+v, want positive ones", group.Phases)
	}
	for i, groups := range []int{1, 2} {
		if i >= len(report.Idle) || report.Idle[i].Groups != groups || report.Idle[i].Resident == 0 || report.Idle[i].Follower == 0 || report.Idle[i].Coordinator == 0 {
			t.Errorf("got idle usages %+v, want positive values in %d groups", report.Idle, groups)
		}
	}
	var printed bytes.Buffer
	if err := report.Print(&printed); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kill -9 until all agents know", "until one witness completes", "until 4 witnesses have completed", "a majority grants", "hand-over: no coordinator", "SIGSTOP until all agents know", "kill -9, p99", "highest resident memory", "idle, groups: 1: resident memory", "groups: 2: CPU of the coordinator",
	} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("the report doesn't contain %q:\n%s", want, printed.String())
		}
	}
}

func TestRatiosOfBatches(t *testing.T) {
	var kills, floors []time.Duration
	for i := range 25 {
		kills = append(kills, time.Duration(i/5+1)*time.Millisecond)
		floors = append(floors, time.Millisecond)
	}
	if got, want := ratiosOfBatches(kills, floors), []float64{1, 2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("got ratios %v, want %v", got, want)
	}
	if got := ratiosOfBatches(kills[:24], floors[:24]); got != nil {
		t.Errorf("got ratios %v of 24 rounds, want none", got)
	}
}

func TestExponentOfGrowth(t *testing.T) {
	var groups []*Group
	for _, agents := range []int{3, 5, 20} {
		squared := float64(agents * agents)
		groups = append(groups,
			&Group{Agents: agents, Mode: "Majority", Kills: &benchmark.Series{Median: 2 * squared}, Floor: &benchmark.Series{Median: 7}},
			&Group{Agents: agents, Mode: "Strict", Kills: nil})
	}
	groups = append(groups, &Group{Agents: 5, Mode: "Available", Kills: &benchmark.Series{Median: 1}}) // One size has no growth.
	var printed bytes.Buffer
	printGrowth(&printed, groups)
	const want = `Majority, failover: median in ms by agents (3: 18.00, 5: 50.00, 20: 800.00) grows as n^2.00
Majority, floor: median in ms by agents (3: 7.00, 5: 7.00, 20: 7.00) grows as n^0.00
`
	if got := printed.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSuspicionsAreCounted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	report, err := measure(ctx, &options{tls: true, suspicions: time.Second, busy: 1, minHeartbeat: 99}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Suspicions) != 2 || report.Suspicions[1].MinHeartbeat != 99 {
		t.Fatalf("got %+v, want the counts of a group and of one whose timing adapts", report.Suspicions)
	}
	for _, s := range report.Suspicions {
		for _, name := range counted {
			if _, found := s.Counters[name]; !found {
				t.Errorf("got no value for %s: %v", name, s.Counters)
			}
		}
	}
}
