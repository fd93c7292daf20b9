package chaos

import (
	"context"
	"testing"
	"time"
)

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
