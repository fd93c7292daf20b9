package main

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/command"
)

// TestCheckUninstallFindsPodsOfStrictGroups, with the permissions of the manager.
func TestCheckUninstallFindsPodsOfStrictGroups(t *testing.T) {
	e := newEnv(t)
	check := func() (int, string) {
		root := newRoot()
		var stderr bytes.Buffer
		root.SetArgs([]string{"check-uninstall"})
		root.SetErr(&stderr)
		return command.Execute(t.Context(), root), stderr.String()
	}
	pod := func(name string, finalizers ...string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Finalizers: finalizers},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
		}
	}
	e.create(pod("other-0", "example.com/backup"))
	if status, stderr := check(); status != command.ExitOK || stderr != "" {
		t.Errorf("without pods of Strict groups: got status %d and %q, want success", status, stderr)
	}
	e.create(pod("ledger-0", v1.StopFinalizer("ledger")), pod("ledger-1", v1.StopFinalizer("ledger")))
	want := "error: 2 pods of groups in Strict mode could not be deleted without the operator: delete these groups first, or set another mode: default/ledger\n"
	if status, stderr := check(); status != command.ExitFailure || stderr != want {
		t.Errorf("got status %d and %q, want status %d and %q", status, stderr, command.ExitFailure, want)
	}
}
