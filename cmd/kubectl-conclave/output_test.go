package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/spf13/cobra"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

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
	for _, args := range [][]string{{"status", "mail"}, {"status"}} {
		without, with := e.runCommand(t, args...), e.runCommand(t, append(args, "--exit-code")...)
		if without.status != 0 || with.status != 3 || with.stdout != without.stdout ||
			with.stderr != "error: these groups have problems: bank/mail\n" {
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
	expect.Equalf(t, e.runCommand(t, "status", "mail", "--exit-code").status, 3,
		"exit status with a coordinator and a problem")
}

// TestControlCharactersAreNotObeyed: whoever may write a status, or control the answers of an
// agent, must not control the terminal of the user who reads them.
func TestControlCharactersAreNotObeyed(t *testing.T) {
	e := newEnv(t)
	g := e.CreateGroup(t, "ledger")
	g.Status.Processes[1].Status, g.Status.Processes[1].Reason = v1.ProcessCrashed, v1.ProcessPodMissing
	g.Status.Processes[1].Message = "\x1b[2J\x1b[Hcoordinator\rledger-0\u009b1m\x7f\x07"
	must.Succeed(t, e.Status().Update(t.Context(), g))
	const want = "PodMissing: ^[[2J^[[Hcoordinator^Mledger-0\ufffd1m^?^G\n"
	for _, command := range []string{"status", "explain"} {
		if got := e.runCommand(t, command, "ledger"); strings.ContainsAny(got.stdout, "\x1b\r\u009b\x7f\x07") {
			t.Errorf("%s: got %q, want no control characters", command, got.stdout)
		}
	}
	expect.Containsf(t, e.runCommand(t, "status", "ledger").stdout, want, "output")
	root := newRoot()
	root.RunE = func(*cobra.Command, []string) error { return errors.New("no, \x1b]0;title\a wait") }
	var notes strings.Builder
	root.SetArgs([]string{})
	root.SetErr(&notes)
	if run(t.Context(), root); !strings.HasSuffix(notes.String(), "no, ^[]0;title^G wait\n") {
		t.Errorf("error: got %q, want no control characters", &notes)
	}
}

// TestIncompleteOutputIsAnError: a script must not take a part of the output for all of it.
func TestIncompleteOutputIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("this system has no /dev/full")
	}
	must.Succeed(t, err)
	defer full.Close()
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	for _, command := range []string{"status ledger", "explain ledger", "simulate", "version"} {
		root := newRoot()
		var notes strings.Builder
		root.SetArgs(append(strings.Fields(command), "--kubeconfig", e.Kubeconfig, "-n", e.Namespace))
		if command == "simulate" {
			root.SetArgs([]string{command})
		}
		root.SetOut(full)
		root.SetErr(&notes)
		if status := run(t.Context(), root); status != 1 ||
			!strings.HasSuffix(notes.String(), "error: cannot write the output: write /dev/full: no space left on device\n") {
			t.Errorf("%s: got exit status %d, %q, want an error", command, status, &notes)
		}
	}
}

func TestUsageErrorIsOneLineThatStatesWhatIsCorrect(t *testing.T) {
	datadriven.RunTest(t, "testdata/usageerrors.txt", func(t *testing.T, d *datadriven.TestData) string {
		got := runCommand(t, nil, strings.Fields(d.Input)...)
		expect.Equalf(t, got.status, 2, "%s: exit status", d.Input)
		expect.Equalf(t, got.stdout, "", "%s: stdout", d.Input)
		expect.Equalf(t, strings.Count(got.stderr, "\n"), 1, "%s: lines", d.Input)
		return got.stderr
	})
}

// Names of algorithms, safety modes, faults and outputs are accepted in any case.
func TestNamesAreAcceptedInAnyCase(t *testing.T) {
	for given, canonical := range map[string]string{
		"simulate --algorithm bully -o MERMAID":         "simulate --algorithm Bully -o mermaid",
		"simulate --algorithm RINGSKIP --safety strict": "simulate --algorithm RingSkip --safety Strict",
		"simulate --schedules 1 --faults Loss,CRASH -o Transcript": "simulate --schedules 1 --faults " +
			"loss,crash -o transcript",
		"simulate --schedules 1 --faults NONE -o transcript --seed 12": "simulate --schedules 1 --faults " +
			"none -o transcript --seed 12",
	} {
		got, want := runCommand(t, nil, strings.Fields(given)...), runCommand(t, nil, strings.Fields(canonical)...)
		if got != want || got.status != 0 {
			t.Errorf("%s: got %+v, want %+v", given, got, want)
		}
	}
}
