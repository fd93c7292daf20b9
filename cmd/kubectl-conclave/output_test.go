package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/plugin/watch"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestExplainPrintsValues(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	for _, output := range []string{"json", "YAML"} {
		var got describe.Explanation
		must.Succeed(t, yaml.UnmarshalStrict([]byte(e.runCommand(t, "explain", "ledger", "-o", output).stdout), &got))
		if got.Namespace+"/"+got.Name != "bank/ledger" || got.Coordinator.Pod != "ledger-2" || !slices.Equal(got.Next, []string{"ledger-1", "ledger-0"}) ||
			got.Members != 3 || got.Up != 3 || got.Needed != 2 || len(got.Problems) != 0 {
			t.Errorf("-o %s: got %+v", output, got)
		}
	}
}

func TestWatchPrintsValues(t *testing.T) {
	e := newEnv(t)
	g := e.CreateGroup(t, "ledger")
	lines := e.startCommand(t, "watch", "ledger", "-o", "json")
	for _, want := range []struct{ change, coordinator string }{
		{"ledger-2 is the coordinator in term 100", "ledger-2"},
		{"ledger-1 became coordinator in term 101", "ledger-1"},
	} {
		var got watch.Change
		must.Succeed(t, json.Unmarshal([]byte(await(t, lines, "a change")), &got))
		if !strings.HasPrefix(got.Changes[0], want.change) || got.Coordinator.Pod != want.coordinator || got.Ready != 3 || got.Time.IsZero() {
			t.Errorf("got %+v, want %+v", got, want)
		}
		e.SetCoordinator(t, g, 1, 101)
	}
}

// With --exit-code, a problem of one of the groups that are shown is exit status 3. The output is the same.
func TestStatusReportsProblemsByExitStatus(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	healthy := e.runCommand(t, "status", "ledger", "--exit-code")
	if healthy.status != 0 || healthy.stderr != "" {
		t.Errorf("healthy: got %+v", healthy)
	}
	mail := e.CreateGroup(t, "mail")
	e.SetCoordinator(t, mail, -1, 101)
	for _, args := range [][]string{{"status", "mail"}, {"status"}, {"status", "-o", "json"}, {"status", "mail", "-o", "yaml"}} {
		without, with := e.runCommand(t, args...), e.runCommand(t, append(args, "--exit-code")...)
		if without.status != 0 || with.status != 3 || with.stdout != without.stdout || with.stderr != "error: these groups have problems: bank/mail\n" {
			t.Errorf("%v: got exit status %d without the flag, and with it %+v", args, without.status, with)
		}
	}
	all := int32(1)
	mail.Status.ReadyMembers = &all
	for i := range mail.Status.Conditions {
		if c := &mail.Status.Conditions[i]; c.Type == string(v1.ConditionAgentsConnected) {
			c.Status, c.Reason = "False", string(v1.ReasonUnreachable)
		}
	}
	e.SetCoordinator(t, mail, 2, 102)
	if got := e.runCommand(t, "status", "mail", "--exit-code"); got.status != 3 {
		t.Errorf("with a coordinator and a problem: got %+v, want exit status 3", got)
	}
}
