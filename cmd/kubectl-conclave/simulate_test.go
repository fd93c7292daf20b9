package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/plugin/simulate"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/transcript"
)

func TestSimulateOutput(t *testing.T) {
	for name, args := range map[string]string{
		"default.txt":       "simulate",
		"one-process.txt":   "simulate --processes 1",
		"none-crashed.txt":  "simulate --algorithm Bully --processes 5 --initiators 1",
		"three-crashed.txt": "simulate --processes 6 --crashed 6,5,1",
		"ten-thousand.txt":  "simulate --processes 10000",
		"many-crashed.txt":  "simulate --processes 200 --crashed 200,150,149,10 --initiators 1,199",
		"ring-skips.txt":    "simulate --algorithm RingSkip --processes 8 --crashed 8 --initiators 3,6",
		"ring-order.txt": "simulate --algorithm RingChampion --processes 5 --ring 3,1,4,2,5 " +
			"--crashed 5 --initiators 1",
		"statustable.transcript": "simulate --processes 4 -o transcript",
		"recovered.transcript":   "simulate --processes 4 --recover 3 -o transcript",
		"ring-skips.transcript":  "simulate --algorithm RingSkip --processes 4 --crashed 4 --initiators 2 -o transcript",
		"ring-forwards.transcript": "simulate --algorithm RingChampion --processes 3 --crashed 3 " +
			"--initiators 1 -o transcript",
		"bully.mermaid": "simulate --algorithm Bully --processes 5 --crashed 5 --initiators 2 -o mermaid",
		"ring-order.mermaid": "simulate --algorithm RingSkip --processes 4 --ring 3,1,4,2 --crashed 4 " +
			"--initiators 1 -o mermaid",
		"majority.mermaid":  "simulate --algorithm RingChampion --processes 3 --safety Majority -o mermaid",
		"truncated.mermaid": "simulate --processes 1000 -o mermaid",
		"many-participants.mermaid": "simulate --processes 60 --crashed " +
			"60,59,58,57,56,55,54,53,52,51,50,49,48,47,46,45,44,43,42,41,40," +
			"39,38,37,36,35,34,33,32,31,30,29,28,27,26,25,24,23,22,21,20,19,18,17 --initiators 1 -o mermaid",
		"help.txt": "simulate --help",
	} {
		t.Run(name, func(t *testing.T) {
			got := runCommand(t, nil, strings.Fields(args)...)
			if got.status != 0 || got.stderr != "" {
				t.Fatalf("%s: got exit status %d, %s, want 0", args, got.status, got.stderr)
			}
			checkGolden(t, name, got.stdout)
		})
	}
}

// TestCostOfEachAlgorithm has the numbers of messages that the papers have.
func TestCostOfEachAlgorithm(t *testing.T) {
	for args, want := range map[string]struct {
		coordinator, up int
		cost, millis    string
	}{
		"--algorithm Bully --processes 10 --crashed 10 --initiators 4": {
			9, 9, "43 messages: 20 ELECTION, 15 OK, 8 COORDINATOR", "2.000",
		},
		"--algorithm Bully --processes 10 --initiators 1": {
			10, 10, "99 messages: 45 ELECTION, 45 OK, 9 COORDINATOR", "2.000",
		},
		"--algorithm StatusTable --processes 10 --crashed 10 --initiators 9": {
			9, 9, "8 messages: 8 COORDINATOR", "1.000",
		},
		"--algorithm RingAllIDs --processes 6": {
			5, 5, "36 messages: 30 ELECT_ME, 6 NEW_COORDINATOR", "11.000",
		},
		"--algorithm RingActiveList --processes 10 --recover 4": {
			10, 10, "10 messages: 6 INQUIRY, 4 REPLY", "10.000",
		},
		"--algorithm RingSkip --processes 8 --crashed 8 --initiators 3,6 --latency 500us": {
			7, 7, "28 messages: 14 ELECTION, 14 COORDINATOR; besides, 4 sent to successors that don't respond", "7.000",
		},
	} {
		got := runCommand(t, nil, append([]string{"simulate"}, strings.Fields(args)...)...)
		text := fmt.Sprintf("OUTCOME  %d is coordinator, and all %d that are up agree\nCOST     %s\nTIME     %s ms\n",
			want.coordinator, want.up, want.cost, want.millis)
		if got.status != 0 || !strings.Contains(got.stdout, text) {
			t.Errorf("simulate %s: got exit status %d\n%swant 0\n%s", args, got.status, got.stdout, text)
		}
	}
}

func TestSafetyIncludesTheHandover(t *testing.T) {
	got := runCommand(t, nil, "simulate", "--processes", "5", "--safety", "Majority", "--recover", "5")
	expect.Containsf(t, got.stdout, "5 is coordinator, and all 5 that are up agree", "the recovered process")
}

// The timeouts of the office and of the simulation depend on the latency of messages and on the length of the ring.
func TestSafetyAllowsForSlowAndLongRings(t *testing.T) {
	for _, args := range []string{
		"--latency 10s", "--latency 1h --recover 10", "--latency 1h --algorithm RingSkip",
		"--processes 200 --algorithm RingSkip", "--processes 200 --algorithm RingAllIDs",
	} {
		got := runCommand(t, nil, append(strings.Fields("simulate --safety Majority"), strings.Fields(args)...)...)
		if got.status != 0 || !strings.Contains(got.stdout, " that are up agree\n") {
			t.Errorf("%s: got exit status %d, want 0 and agreement\n%s%s", args, got.status, got.stdout, got.stderr)
		}
	}
}

func TestSafetyWithoutMajorityElectsNone(t *testing.T) {
	got := runCommand(t, nil,
		strings.Fields("simulate --algorithm Bully --processes 4 --crashed 2,3 --initiators 4 --safety Majority")...)
	if got.status != 0 || !strings.Contains(got.stdout, "no agreement: 1, 4 name nobody\n") {
		t.Errorf("got exit status %d, want 0 and no agreement\n%s", got.status, got.stdout)
	}
}

// The output of ten thousand processes must not print or compare all their tables row by row.
func TestTenThousandProcessesAreFast(t *testing.T) {
	started := time.Now()
	got := runCommand(t, nil, "simulate", "--processes", "10000")
	expect.AtMostf(t, time.Since(started), 5*time.Second, "time of the simulation")
	expect.AtMostf(t, strings.Count(got.stdout, "\n"), 40, "lines")
}

func TestHelpFitsTheTerminal(t *testing.T) {
	for _, args := range []string{
		"", "simulate", "status", "explain", "nodes", "evacuate", "step-down", "version", "help",
	} {
		for line := range strings.Lines(runCommand(t, nil, append(strings.Fields(args), "--help")...).stdout) {
			if width := len([]rune(line)) - 1; width > helpColumns {
				t.Errorf("%s --help: got a line of %d characters, want at most %d: %s", args, width, helpColumns, line)
			}
		}
	}
}

func TestCommandWithoutArgumentsPrintsHelp(t *testing.T) {
	got := runCommand(t, nil)
	if got.status != 0 || !strings.Contains(got.stdout, "kubectl conclave simulate") {
		t.Errorf("got %+v, want help", got)
	}
}

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
	return regexp.MustCompile(`SPEED( +)\d+`).ReplaceAllString(s, "SPEED${1}N")
}

func TestSamplingResultIsPrinted(t *testing.T) {
	for name, c := range map[string]struct {
		sample simulate.Sampler
		args   string
		status int
		err    string
	}{
		"schedules.txt": {sample: sampleWithoutViolations, args: "--schedules 1000"},
		"violations.txt": {
			sample: sampleWithViolations,
			args:   "--schedules 1000 --seed 100 --faults crash,loss --safety Strict --algorithm RingSkip --processes 4",
			status: 1,
			err: "error: 3 of 1000 schedules violated an invariant; to replay the first one, run: kubectl conclave " +
				"simulate --algorithm RingSkip " +
				"--processes 4 --safety Strict --faults loss,crash --schedules 1 --seed 104\n",
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
	got := runCommand(t, sampleUntilCanceled, "simulate", "--duration", "1ms")
	if got.status != 0 || got.stderr != "" {
		t.Errorf("got exit status %d, stderr %q, want 0 and none", got.status, got.stderr)
	}
	expect.Containsf(t, got.stdout, "SCHEDULES   17\n", "output without (interrupted)")
}

func TestTranscriptOfOneSchedule(t *testing.T) {
	watched := func(_ context.Context, s sim.Sampling) (sim.Report, error) {
		s.Watch(transcript.Step{
			At: 1500, Process: 3, Input: election.Input{Kind: election.Suspect, Peer: 5},
			Output: &election.Output{Events: []election.Event{{Kind: election.MarkedCrashed, Peer: 5, Term: 2}}},
		})
		return sim.Report{
			Schedules: 1, Violated: 1, Violations: []sim.Violation{{Seed: 3, Invariant: "one holder", Detail: "2 and 3"}},
		}, nil
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
