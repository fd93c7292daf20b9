package main

import (
	"strings"
	"testing"
	"time"
)

func TestSimulateShowsWhatHappened(t *testing.T) {
	for name, args := range map[string]string{
		"default.txt":             "simulate",
		"alone.txt":               "simulate --processes 1",
		"nobody-down.txt":         "simulate --algorithm Bully --processes 5 --initiators 1",
		"dead-on-the-way.txt":     "simulate --processes 6 --crashed 6,5,1",
		"ten-thousand.txt":        "simulate --processes 10000",
		"many-down.txt":           "simulate --processes 200 --crashed 200,150,149,10 --initiators 1,199",
		"ring-skips.txt":          "simulate --algorithm RingSkip --processes 8 --crashed 8 --initiators 3,6",
		"ring-order.txt":          "simulate --algorithm RingChampion --processes 5 --ring 3,1,4,2,5 --crashed 5 --initiators 1",
		"bully.json":              "simulate --algorithm Bully --processes 10 --crashed 10 --initiators 4 -o json",
		"recovered.json":          "simulate --processes 10 --recover 8 -o json",
		"statustable.transcript":  "simulate --processes 4 -o transcript",
		"recovered.transcript":    "simulate --processes 4 --recover 3 -o transcript",
		"ring-skips.transcript":   "simulate --algorithm RingSkip --processes 4 --crashed 4 --initiators 2 -o transcript",
		"forwards.transcript":     "simulate --algorithm RingChampion --processes 3 --crashed 3 --initiators 1 -o transcript",
		"bully.mermaid":           "simulate --algorithm Bully --processes 5 --crashed 5 --initiators 2 -o mermaid",
		"ring-order.mermaid":      "simulate --algorithm RingSkip --processes 4 --ring 3,1,4,2 --crashed 4 --initiators 1 -o mermaid",
		"majority.mermaid":        "simulate --algorithm RingChampion --processes 3 --safety Majority -o mermaid",
		"much-left-out.mermaid":   "simulate --processes 1000 -o mermaid",
		"compare.txt":             "simulate compare --max 12",
		"compare-few-of-many.txt": "simulate compare --max 60",
		"compare.svg":             "simulate compare --max 20 -o svg",
		"compare-one-point.svg":   "simulate compare --max 3 -o svg",
		"no-room.mermaid":         "simulate --processes 60 --crashed 60,59,58,57,56,55,54,53,52,51,50,49,48,47,46,45,44,43,42,41,40,39,38,37,36,35,34,33,32,31,30,29,28,27,26,25,24,23,22,21,20,19,18,17 --initiators 1 -o mermaid",
		"help.txt":                "simulate --help",
	} {
		t.Run(name, func(t *testing.T) {
			got := conclave(t, nil, strings.Fields(args)...)
			if got.status != 0 || got.err != "" {
				t.Fatalf("%s: exit status %d, %s", args, got.status, got.err)
			}
			golden(t, name, got.out)
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
		got := conclave(t, nil, append([]string{"simulate", "-o", "json"}, strings.Fields(args)...)...)
		if got.status != 0 || got.out != want+"\n" {
			t.Errorf("simulate %s: exit status %d\n%swant\n%s", args, got.status, got.out, want)
		}
	}
}

func TestSafetyWaitsForTheHandover(t *testing.T) {
	got := conclave(t, nil, "simulate", "--processes", "5", "--safety", "Majority", "--recover", "5", "-o", "json")
	if !strings.Contains(got.out, `"coordinator":5,"agreed":true`) {
		t.Errorf("a recovered process that outranks the coordinator got no office: %s", got.out)
	}
}

// However long a message takes, and however many a ring has, the office waits for
// what goes round, and we for the office.
func TestSafetyHasTimeForSlowAndLongRings(t *testing.T) {
	for _, args := range []string{
		"--latency 10s", "--latency 1h --recover 10", "--latency 1h --algorithm RingSkip",
		"--processes 200 --algorithm RingSkip", "--processes 200 --algorithm RingAllIDs",
	} {
		got := conclave(t, nil, append(strings.Fields("simulate --safety Majority -o json"), strings.Fields(args)...)...)
		if got.status != 0 || !strings.Contains(got.out, `"agreed":true`) {
			t.Errorf("%s: exit status %d\n%s%s", args, got.status, got.out, got.err)
		}
	}
}

func TestSafetyWithoutAMajorityElectsNobody(t *testing.T) {
	got := conclave(t, nil, strings.Fields("simulate --algorithm Bully --processes 4 --crashed 2,3 --initiators 4 --safety Majority")...)
	if got.status != 0 || !strings.Contains(got.out, "no agreement: 1, 4 name nobody\n") {
		t.Errorf("exit status %d\n%s", got.status, got.out)
	}
}

// Ten thousand tables of ten thousand rows each must be neither printed nor
// compared row by row.
func TestTenThousandProcessesEndSoon(t *testing.T) {
	started := time.Now()
	got := conclave(t, nil, "simulate", "--processes", "10000")
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	if lines := strings.Count(got.out, "\n"); lines > 40 {
		t.Errorf("printed %d lines", lines)
	}
}

func TestVersion(t *testing.T) {
	if got := conclave(t, nil, "version"); got.status != 0 || strings.TrimSpace(got.out) == "" {
		t.Errorf("version said %+v", got)
	}
}

func TestHelpFitsTheTerminal(t *testing.T) {
	for _, args := range []string{
		"", "simulate", "simulate compare", "status", "explain", "watch", "step-down", "inject", "version", "help",
	} {
		for line := range strings.Lines(conclave(t, nil, append(strings.Fields(args), "--help")...).out) {
			if wide := len([]rune(line)) - 1; wide > columns {
				t.Errorf("%s --help has a line of %d characters: %s", args, wide, line)
			}
		}
	}
}

func TestTheCommandAloneHelps(t *testing.T) {
	got := conclave(t, nil)
	if got.status != 0 || !strings.Contains(got.out, "kubectl conclave simulate") {
		t.Errorf("said %+v", got)
	}
}
