package main

import (
	"bytes"
	"context"
	"io"
	"os"
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

func TestAllMeasurementsAreReported(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := program.DependOnProgram(ctx, "../..", "./cmd/agent"); err != nil {
		t.Fatal(err)
	}
	report, err := measure(ctx, &options{
		agents: []int{5}, modes: []string{"Majority"}, kills: 2, handOvers: 2, stops: 1, tls: true, idle: time.Second,
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if count := report.Failures(); count > 0 {
		t.Errorf("got %d failed rounds, want none: %v", count, report.Groups[0].Failures)
	}
	group := report.Groups[0]
	for name, series := range map[string]*benchmark.Series{"kill": group.Kills, "floor": group.Floor, "hand-over": group.HandOvers, "stop": group.Stops} {
		if series == nil {
			t.Errorf("got no series for %s", name)
		}
	}
	if group.Kills != nil && group.Kills.Rounds != 2 {
		t.Errorf("got %d kills, want 2", group.Kills.Rounds)
	}
	if report.Idle == nil || report.Idle.Resident == 0 || report.Idle.Follower == 0 || report.Idle.Coordinator == 0 {
		t.Errorf("got idle usage %+v, want positive values", report.Idle)
	}
	var printed bytes.Buffer
	if err := report.Print(&printed); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kill -9 until all agents know", "floor", "hand-over: no coordinator", "SIGSTOP until all agents know", "kill -9, p99", "resident memory",
	} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("the report doesn't contain %q:\n%s", want, printed.String())
		}
	}
}

func TestSuspicionsAreCounted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	report, err := measure(ctx, &options{tls: true, suspicions: time.Second}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range counted {
		if _, found := report.Suspicions.Counters[name]; !found {
			t.Errorf("got no value for %s: %v", name, report.Suspicions.Counters)
		}
	}
}
