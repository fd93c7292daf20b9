package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// The duration of a failover is what the agents measured, if the status contains it for the present term.
func TestFailoverIsWhatAgentsMeasured(t *testing.T) {
	const unknown = time.Minute
	for history, want := range map[string]time.Duration{
		`[]`: unknown,
		`[{"term":8,"gapMicros":4100},{"term":7,"gapMicros":900}]`: 4100 * time.Microsecond,
		`[{"term":8},{"term":7,"gapMicros":900}]`:                  unknown,
	} {
		var g v1.ElectionGroup
		must.Succeed(t, json.Unmarshal([]byte(`{"coordinator":{"pod":"p-1","term":8},"history":`+history+`}`), &g.Status))
		if got := gapOf(&g, unknown); got != want {
			t.Errorf("%s: got %s, want %s", history, got, want)
		}
	}
}

// The next steps work when they are pasted: on a machine without kubectl, and for a user who has used sudo.
func TestNextStepsSuitMachine(t *testing.T) {
	steps := func() string {
		printed := &testwait.Log{}
		s := &demo{out: printed, cluster: &hackCluster{}}
		s.printNextSteps()
		return printed.String()
	}
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	t.Setenv("SUDO_UID", "1000")
	for _, want := range []string{"\nsudo -s ", "\nbin/cluster kubectl --name demo -- get electiongroups", "\nbin/cluster kubectl --name demo -- exec"} {
		if got := steps(); !strings.Contains(got, want) {
			t.Errorf("without kubectl: got %s\nwant %q", got, want)
		}
	}
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "kubectl"), nil, 0o755))
	must.Succeed(t, os.Unsetenv("SUDO_UID"))
	t.Setenv("CLUSTER", "hack")
	if got := steps(); !strings.Contains(got, "\nkubectl get electiongroups") || strings.Contains(got, "sudo") || !strings.Contains(got, "\nmake demo-down ") {
		t.Errorf("with kubectl, as root: got %s", got)
	}
	t.Setenv("CLUSTER", "kind")
	if got := steps(); !strings.Contains(got, "\nCLUSTER=kind make demo-down ") {
		t.Errorf("on kind: got %s", got)
	}
}

// The steps follow what kubectl prints.
func TestWatchReadsGroup(t *testing.T) {
	const printed = `{"metadata":{"name":"lock-service"},"status":{"coordinator":{"pod":"p-1","priority":20,"term":8,"electedAt":"2026-11-20T11:59:56.123456Z"},
		"processes":[{"pod":"p-1","priority":20,"status":"Coordinator","since":"2026-11-20T11:59:56Z"}],
		"history":[{"pod":"p-1","priority":20,"term":8,"since":"2026-11-20T11:59:56.123456Z","gapMicros":4100}]}}`
	s := &demo{cluster: &scriptedCluster{script: "echo '" + printed + "'"}, changed: make(chan struct{})}
	must.Succeed(t, s.watchOnce(t.Context()))
	if c := coordinatorOf(s.now); c.Pod != "p-1" || c.Term != 8 || gapOf(s.now, 0) != 4100*time.Microsecond {
		t.Errorf("got %+v, want p-1 in term 8 after 4.1 ms", s.now)
	}
}
