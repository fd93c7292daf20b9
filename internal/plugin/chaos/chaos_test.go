package chaos

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/live"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestConfirmationNamesWhatElseIsConcerned(t *testing.T) {
	kinds, err := chaos.ParseKinds([]string{chaos.Pod, chaos.Drain, chaos.Manager})
	must.Succeed(t, err)
	const want = "Its pods are also members of other groups: audit.\nThese faults also concern other pods or groups of the cluster: drain, manager.\n"
	if got := memberships([]v1.ElectionGroup{{ObjectMeta: metav1.ObjectMeta{Name: "audit"}}}) + sharedFaults(kinds); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	expect.Equal(t, memberships(nil)+sharedFaults(kinds[:1]), "")
}

func TestChaosAsksForAConfirmation(t *testing.T) {
	kinds, err := chaos.ParseKinds([]string{chaos.Pod, chaos.Two})
	must.Succeed(t, err)
	for answer, confirmed := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "": false, "y": true} {
		var out strings.Builder
		if err := ask(t.Context(), strings.NewReader(answer), &out, &live.Run{Faults: 20, Kinds: kinds}, "group ledger in namespace bank", "It runs pods.\n"); (err == nil) != confirmed {
			t.Errorf("answer %q: got %v, want confirmed: %t", answer, err, confirmed)
		}
		if want := "This injects 20 faults (pod, two) into group ledger in namespace bank, which interrupts its service.\nIt runs pods.\nContinue? [y/N] "; out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
}

// TestConfirmationCanBeInterrupted: nobody answers.
func TestConfirmationCanBeInterrupted(t *testing.T) {
	in, answers := io.Pipe()
	defer answers.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(ctx, in, io.Discard, &live.Run{}, "", ""); !errors.Is(err, command.ErrInterrupted) {
		t.Errorf("got %v, want %v", err, command.ErrInterrupted)
	}
}

func TestCheckHasATimeLimit(t *testing.T) {
	o := options{check: "sleep 60", timeout: 100 * time.Millisecond}
	err := o.workloadCheck("", "")(t.Context())
	if want := "the command of --check took longer than --timeout (100ms)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The command must undo its faults soon, also if a program that --check has started continues.
func TestInterruptedCheckEnds(t *testing.T) {
	o := options{check: "sleep 60; true", timeout: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := o.workloadCheck("", "")(ctx); err == nil || time.Since(began) > 50*time.Second {
		t.Errorf("got %v after %s, want an error soon", err, time.Since(began))
	}
}

func TestWorkloadIsCheckedByACommand(t *testing.T) {
	for command, want := range map[string]string{
		"true":                              "",
		"sleep 3 & echo holds":              "",
		"echo first; echo gap at 7; exit 1": "gap at 7",
		"echo $NAMESPACE/$GROUP; exit 1":    "bank/ledger",
		"echo gap at 7; echo command terminated with exit code 1; exit 1": "gap at 7",
		"exit 3": "the command of --check failed: exit status 3",
	} {
		o := options{check: command, timeout: time.Hour}
		err := o.workloadCheck("ledger", "bank")(context.Background())
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: got %v, want %q", command, err, want)
		}
	}
	if check := (&options{}).workloadCheck("ledger", "bank"); check != nil {
		t.Error("got a check without --check, want none")
	}
}
