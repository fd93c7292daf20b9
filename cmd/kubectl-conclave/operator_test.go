package main

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// createSilentLease creates the Lease of an operator that hasn't renewed it for three minutes.
func (e *env) createSilentLease(t *testing.T, namespace string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: operatorlease.Name},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(time.Now().Add(-3 * time.Minute)))},
	}
	must.Succeed(t, e.Create(t.Context(), lease))
	t.Cleanup(func() { _ = e.Delete(context.WithoutCancel(t.Context()), lease) })
	return lease
}

// TestStatusMayBeOutdated: without the operator, a status looks as if nothing happened.
func TestStatusMayBeOutdated(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	e.CreateOperator(t)
	lease := e.createSilentLease(t, e.Namespace)
	const want = "The operator in namespace bank has not shown that it runs for 3m"
	for _, command := range []string{"status", "explain"} {
		if got := e.runCommand(t, command, "ledger"); !strings.HasPrefix(got.stderr, want) || strings.Count(got.stderr, "\n") != 1 || got.status != 0 {
			t.Errorf("%s: got exit status %d, %q, want one line that begins with %q", command, got.status, got.stderr, want)
		}
	}
	if got := e.runCommand(t, "step-down", "ledger"); !strings.HasPrefix(got.stderr, want) || got.status != 1 {
		t.Errorf("step-down: got %+v, want a line that begins with %q", got, want)
	}
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
	must.Succeed(t, e.Update(t.Context(), lease))
	if got := e.runCommand(t, "status", "ledger"); got.stderr != "" || got.status != 0 {
		t.Errorf("the operator runs: got exit status %d, %q, want no warning", got.status, got.stderr)
	}
}

// TestOperatorIsFoundInAnyNamespace: also by commands about groups of other namespaces.
func TestOperatorIsFoundInAnyNamespace(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	e.CreateOperatorIn(t, "default")
	if got := e.runCommand(t, "version"); !strings.Contains(got.stdout, " in namespace default, ") {
		t.Errorf("version: got %+v, want the operator", got)
	}
	e.createSilentLease(t, "default")
	const silent = "The operator in namespace default has not shown that it runs for 3m"
	if got := e.runCommand(t, "status"); !strings.HasPrefix(got.stderr, silent) || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("status: got %q, want one line that begins with %q", got.stderr, silent)
	}
}

// TestSecondOperatorIsReported: somebody has installed another one by mistake.
func TestSecondOperatorIsReported(t *testing.T) {
	e := newEnv(t)
	e.CreateOperatorIn(t, "default")
	e.CreateOperator(t)
	if got := e.runCommand(t, "check"); got.status != 3 || !strings.Contains(got.stdout, "PROBLEM  operator: Operators are installed in several namespaces: bank, default.\n") {
		t.Errorf("check: got %+v, want a problem", got)
	}
	if got := e.runCommand(t, "version"); !strings.HasSuffix(got.stderr, "operators are installed in several namespaces: bank, default\n") {
		t.Errorf("version: got %+v, want both namespaces", got)
	}
}
