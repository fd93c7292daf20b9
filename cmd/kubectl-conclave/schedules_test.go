package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/conclave-dev/conclave/internal/diagram"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/plugin/simulate"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// sampleWithoutViolations runs all schedules without a violation.
func sampleWithoutViolations(_ context.Context, s sim.Sampling) (sim.Report, error) {
	return sim.Report{Schedules: s.Schedules, Steps: 1234}, nil
}

// sampleWithViolations violates an invariant in three schedules.
func sampleWithViolations(_ context.Context, s sim.Sampling) (sim.Report, error) {
	return sim.Report{
		Schedules: s.Schedules, Steps: 1234, Violated: 3,
		Violations: []sim.Violation{
			{Seed: s.Seed + 9, Invariant: "one holder", Detail: "2 and 3 hold the office at 1.250 ms"},
			{Seed: s.Seed + 4, Invariant: "tokens rise", Detail: "5 & 4 < 6"},
		},
	}, nil
}

// withoutTimes replaces the values that differ from run to run.
func withoutTimes(s string) string {
	s = regexp.MustCompile(`SPEED( +)\d+`).ReplaceAllString(s, "SPEED${1}N")
	s = regexp.MustCompile(`"elapsedMillis":\d+`).ReplaceAllString(s, `"elapsedMillis":N`)
	return regexp.MustCompile(`"schedulesPerSecond":\d+`).ReplaceAllString(s, `"schedulesPerSecond":N`)
}

func TestSamplingResultIsPrinted(t *testing.T) {
	for name, c := range map[string]struct {
		sample simulate.Sampler
		args   string
		status int
		err    string
	}{
		"schedules.txt":  {sample: sampleWithoutViolations, args: "--schedules 1000"},
		"schedules.json": {sample: sampleWithoutViolations, args: "--schedules 1000 --faults none -o json --seed 7"},
		"violations.txt": {
			sample: sampleWithViolations, args: "--schedules 1000 --seed 100 --faults crash,loss --safety Strict --algorithm RingSkip --processes 4",
			status: 1,
			err: "error: 3 of 1000 schedules violated an invariant; to replay the first one, run: kubectl conclave simulate --algorithm RingSkip " +
				"--processes 4 --safety Strict --faults loss,crash --schedules 1 --seed 104\n",
		},
		"violations.json": {
			sample: sampleWithViolations, args: "--schedules 20 -o json", status: 1,
			err: "error: 3 of 20 schedules violated an invariant; to replay the first one, run: kubectl conclave simulate --algorithm StatusTable " +
				"--processes 5 --safety Majority --faults all --schedules 1 --seed 5\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := runCommand(t, c.sample, append([]string{"simulate"}, strings.Fields(c.args)...)...)
			if got.status != c.status || got.stderr != c.err {
				t.Errorf("got exit status %d, want %d; stderr: got\n%swant\n%s", got.status, c.status, got.stderr, c.err)
			}
			checkGolden(t, name, withoutTimes(got.stdout))
		})
	}
}

// The command in the output of a violation runs exactly that schedule again.
func TestReplayRunsTheSameSchedule(t *testing.T) {
	for _, faults := range []string{"all", "none", "loss,crash", "crash, loss", "members,all", "gone,all", "gone"} {
		var first, again sim.Sampling
		record := func(into *sim.Sampling) simulate.Sampler {
			return func(ctx context.Context, s sim.Sampling) (sim.Report, error) {
				*into = s
				return sampleWithViolations(ctx, s)
			}
		}
		got := runCommand(t, record(&first), "simulate", "--algorithm", "Bully", "--schedules", "50", "--faults", faults,
			"--safety", "Available")
		_, command, found := strings.Cut(got.stderr, "kubectl conclave ")
		if !found {
			t.Fatalf("got %q, want a command in it", got.stderr)
		}
		runCommand(t, record(&again), strings.Fields(command)...)
		first.Schedules, first.Seed = 1, 5
		if !reflect.DeepEqual(first, again) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", command, again, first)
		}
	}
}

// sampleUntilCanceled runs until its context ends.
func sampleUntilCanceled(ctx context.Context, _ sim.Sampling) (sim.Report, error) {
	<-ctx.Done()
	return sim.Report{Schedules: 17, Steps: 99}, nil
}

func TestInterruptPrintsTheResultSoFar(t *testing.T) {
	interrupt := func(ctx context.Context, s sim.Sampling) (sim.Report, error) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			return sim.Report{}, err
		}
		return sampleUntilCanceled(ctx, s)
	}
	got := runCommand(t, interrupt, "simulate", "--schedules", "1000")
	if got.status != 130 || got.stderr != "error: interrupted\n" {
		t.Errorf("got exit status %d, stderr %q, want 130, interrupted", got.status, got.stderr)
	}
	checkGolden(t, "interrupted.txt", withoutTimes(got.stdout))
}

func TestDurationEndsWithoutAnError(t *testing.T) {
	got := runCommand(t, sampleUntilCanceled, "simulate", "--duration", "1ms", "-o", "json")
	if got.status != 0 || got.stderr != "" {
		t.Errorf("got exit status %d, stderr %q, want 0 and none", got.status, got.stderr)
	}
	var report struct {
		Schedules   int
		Interrupted bool
	}
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || report.Schedules != 17 || report.Interrupted {
		t.Errorf("got %s (%v), want 17 schedules, not interrupted", got.stdout, err)
	}
}

func TestTranscriptOfOneSchedule(t *testing.T) {
	watched := func(_ context.Context, s sim.Sampling) (sim.Report, error) {
		s.Watch(diagram.Step{
			At: 1500, Process: 3, Input: election.Input{Kind: election.Suspect, Peer: 5},
			Output: &election.Output{Events: []election.Event{{Kind: election.MarkedCrashed, Peer: 5, Term: 2}}},
		})
		return sim.Report{Schedules: 1, Violated: 1, Violations: []sim.Violation{{Seed: 3, Invariant: "one holder", Detail: "2 and 3"}}}, nil
	}
	got := runCommand(t, watched, "simulate", "--schedules", "1", "--seed", "3", "-o", "transcript")
	want := `# StatusTable, 5 processes, Majority, faults: all, seed 3
     1.500 ms     3  gets   suspect 5
     1.500 ms     3  finds  crashed 5, term 2
# broken: one holder: 2 and 3
`
	if got.stdout != want || got.status != 1 {
		t.Errorf("got exit status %d\n%swant 1\n%s", got.status, got.stdout, want)
	}
}

func TestInputErrorOfTheSimulatorIsAUsageError(t *testing.T) {
	refuse := func(context.Context, sim.Sampling) (sim.Report, error) {
		return sim.Report{}, &sim.InputError{Reason: "schedules must have 1 to 20 processes, not 21"}
	}
	got := runCommand(t, refuse, "simulate", "--schedules", "5", "--processes", "21")
	if got.status != 2 || got.stderr != "error: schedules must have 1 to 20 processes, not 21\n" || got.stdout != "" {
		t.Errorf("got %+v, want a usage error", got)
	}
	fail := func(context.Context, sim.Sampling) (sim.Report, error) { return sim.Report{}, errors.New("failed") }
	expect.Equalf(t, runCommand(t, fail, "simulate", "--schedules", "5").status, 1, "exit status")
}
