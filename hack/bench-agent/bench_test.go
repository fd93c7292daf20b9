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
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/program"
)

// TestMain lets the test binary run the hidden commands that the benchmark starts as processes.
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
	must.Succeed(t, program.DependOnProgram(ctx, "../..", "./cmd/agent"))
	report, err := measure(ctx, &options{
		agents: []int{5}, modes: []string{"Majority"}, kills: 2, handOvers: 2, stops: 1, heartbeat: 100,
		idle: time.Second, groups: []int{1, 2},
	}, io.Discard)
	must.Succeed(t, err)
	if count := report.Failures(); count > 0 {
		t.Errorf("got %d failed rounds, want none: %v", count, report.Groups[0].Failures)
	}
	group := report.Groups[0]
	for name, series := range map[string]*benchmark.Series{
		"kill": group.Kills, "floor": group.Floor, "hand-over": group.HandOvers, "stop": group.Stops,
	} {
		if series == nil {
			t.Errorf("got no series for %s", name)
		}
	}
	if group.Kills != nil && group.Kills.Rounds != 2 {
		t.Errorf("got %d kills, want 2", group.Kills.Rounds)
	}
	for i, groups := range []int{1, 2} {
		if i >= len(report.Idle) || report.Idle[i].Groups != groups || report.Idle[i].Resident == 0 ||
			report.Idle[i].Follower == 0 || report.Idle[i].Coordinator == 0 {
			t.Errorf("got idle usages %+v, want positive values in %d groups", report.Idle, groups)
		}
	}
	var printed bytes.Buffer
	must.Succeed(t, report.Print(&printed))
	for _, want := range []string{
		"kill -9 until all agents know", "until 4 witnesses have completed", "hand-over: no coordinator",
		"SIGSTOP, then kill -9, until all agents know", "kill -9, p99", "highest resident memory",
		"idle, groups: 1: resident memory", "groups: 2: CPU of the coordinator",
	} {
		expect.Containsf(t, printed.String(), want, "report")
	}
}
