package main

import (
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func TestSimulateOutput(t *testing.T) {
	for name, args := range map[string]string{
		"default.txt":               "simulate",
		"one-process.txt":           "simulate --processes 1",
		"none-crashed.txt":          "simulate --algorithm Bully --processes 5 --initiators 1",
		"three-crashed.txt":         "simulate --processes 6 --crashed 6,5,1",
		"ten-thousand.txt":          "simulate --processes 10000",
		"many-crashed.txt":          "simulate --processes 200 --crashed 200,150,149,10 --initiators 1,199",
		"ring-skips.txt":            "simulate --algorithm RingSkip --processes 8 --crashed 8 --initiators 3,6",
		"ring-order.txt":            "simulate --algorithm RingChampion --processes 5 --ring 3,1,4,2,5 --crashed 5 --initiators 1",
		"bully.json":                "simulate --algorithm Bully --processes 10 --crashed 10 --initiators 4 -o json",
		"recovered.json":            "simulate --processes 10 --recover 8 -o json",
		"statustable.transcript":    "simulate --processes 4 -o transcript",
		"recovered.transcript":      "simulate --processes 4 --recover 3 -o transcript",
		"ring-skips.transcript":     "simulate --algorithm RingSkip --processes 4 --crashed 4 --initiators 2 -o transcript",
		"ring-forwards.transcript":  "simulate --algorithm RingChampion --processes 3 --crashed 3 --initiators 1 -o transcript",
		"bully.mermaid":             "simulate --algorithm Bully --processes 5 --crashed 5 --initiators 2 -o mermaid",
		"ring-order.mermaid":        "simulate --algorithm RingSkip --processes 4 --ring 3,1,4,2 --crashed 4 --initiators 1 -o mermaid",
		"majority.mermaid":          "simulate --algorithm RingChampion --processes 3 --safety Majority -o mermaid",
		"truncated.mermaid":         "simulate --processes 1000 -o mermaid",
		"many-participants.mermaid": "simulate --processes 60 --crashed 60,59,58,57,56,55,54,53,52,51,50,49,48,47,46,45,44,43,42,41,40,39,38,37,36,35,34,33,32,31,30,29,28,27,26,25,24,23,22,21,20,19,18,17 --initiators 1 -o mermaid",
		"help.txt":                  "simulate --help",
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

func TestSimulateJSONOfEachAlgorithm(t *testing.T) {
	for args, want := range map[string]string{
		"--algorithm Bully --processes 10 --crashed 10 --initiators 4": `{"algorithm":"Bully","processes":10,"coordinator":9,"agreed":true,` +
			`"total":43,"skipped":0,"elapsedMillis":2,"messages":{"ELECTION":20,"OK":15,"COORDINATOR":8}}`,
		"--algorithm Bully --processes 10 --initiators 1": `{"algorithm":"Bully","processes":10,"coordinator":10,"agreed":true,` +
			`"total":99,"skipped":0,"elapsedMillis":2,"messages":{"ELECTION":45,"OK":45,"COORDINATOR":9}}`,
		"--algorithm StatusTable --processes 10 --crashed 10 --initiators 9": `{"algorithm":"StatusTable","processes":10,"coordinator":9,"agreed":true,` +
			`"total":8,"skipped":0,"elapsedMillis":1,"messages":{"COORDINATOR":8}}`,
		"--algorithm RingAllIDs --processes 6": `{"algorithm":"RingAllIDs","processes":6,"coordinator":5,"agreed":true,` +
			`"total":36,"skipped":0,"elapsedMillis":11,"messages":{"ELECT_ME":30,"NEW_COORDINATOR":6}}`,
		"--algorithm RingActiveList --processes 10 --recover 4": `{"algorithm":"RingActiveList","processes":10,"coordinator":10,"agreed":true,` +
			`"total":10,"skipped":0,"elapsedMillis":10,"messages":{"INQUIRY":6,"REPLY":4}}`,
		"--algorithm RingSkip --processes 8 --crashed 8 --initiators 3,6 --latency 500us": `{"algorithm":"RingSkip","processes":8,"coordinator":7,"agreed":true,` +
			`"total":28,"skipped":4,"elapsedMillis":7,"messages":{"ELECTION":14,"COORDINATOR":14}}`,
	} {
		got := runCommand(t, nil, append([]string{"simulate", "-o", "json"}, strings.Fields(args)...)...)
		if got.status != 0 || got.stdout != want+"\n" {
			t.Errorf("simulate %s: got exit status %d\n%swant 0\n%s", args, got.status, got.stdout, want)
		}
	}
}

func TestSafetyIncludesTheHandover(t *testing.T) {
	got := runCommand(t, nil, "simulate", "--processes", "5", "--safety", "Majority", "--recover", "5", "-o", "json")
	expect.Containsf(t, got.stdout, `"coordinator":5,"agreed":true`, "the recovered process as coordinator")
}

// The timeouts of the office and of the simulation depend on the latency of messages
// and on the length of the ring.
func TestSafetyAllowsForSlowAndLongRings(t *testing.T) {
	for _, args := range []string{
		"--latency 10s", "--latency 1h --recover 10", "--latency 1h --algorithm RingSkip",
		"--processes 200 --algorithm RingSkip", "--processes 200 --algorithm RingAllIDs",
	} {
		got := runCommand(t, nil, append(strings.Fields("simulate --safety Majority -o json"), strings.Fields(args)...)...)
		if got.status != 0 || !strings.Contains(got.stdout, `"agreed":true`) {
			t.Errorf("%s: got exit status %d, want 0 and agreement\n%s%s", args, got.status, got.stdout, got.stderr)
		}
	}
}

func TestSafetyWithoutMajorityElectsNone(t *testing.T) {
	got := runCommand(t, nil, strings.Fields("simulate --algorithm Bully --processes 4 --crashed 2,3 --initiators 4 --safety Majority")...)
	if got.status != 0 || !strings.Contains(got.stdout, "no agreement: 1, 4 name nobody\n") {
		t.Errorf("got exit status %d, want 0 and no agreement\n%s", got.status, got.stdout)
	}
}

// The output of ten thousand processes must not print or compare all their tables row
// by row.
func TestTenThousandProcessesAreFast(t *testing.T) {
	started := time.Now()
	got := runCommand(t, nil, "simulate", "--processes", "10000")
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("got %v, want at most 5 s", took)
	}
	expect.AtMostf(t, strings.Count(got.stdout, "\n"), 40, "lines")
}

func TestVersion(t *testing.T) {
	if got := runCommand(t, nil, "version"); got.status != 0 || strings.TrimSpace(got.stdout) == "" {
		t.Errorf("got %+v, want a version", got)
	}
}

func TestHelpFitsTheTerminal(t *testing.T) {
	for _, args := range []string{
		"", "simulate", "status", "explain", "nodes", "evacuate", "watch", "step-down", "version", "help",
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
