package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestUpgradeRefusesInvalidArguments(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	e.createPodWithAgent(t, "ledger-0")
	for args, want := range map[string]string{
		"upgrade":                         "either the name of a group or --all is required, such as: kubectl conclave upgrade ledger",
		"upgrade ledger --all":            "either the name of a group or --all is required, such as: kubectl conclave upgrade ledger",
		"upgrade ledger -A":               "--all-namespaces requires --all",
		"upgrade ledger --timeout 0s":     "--timeout must be above 0, got 0s",
		"upgrade ledgers --agent-image a": "group ledgers not found in namespace bank (did you mean ledger?); to list all groups, run: kubectl get electiongroups -A",
		"upgrade ledger --as nobody":      "electiongroups.conclave.dev \"ledger\" is forbidden: User \"nobody\" cannot get resource \"electiongroups\" in API group \"conclave.dev\" in the namespace \"bank\"",
	} {
		got := e.runCommand(t, strings.Fields(args)...)
		if got.stderr != "error: "+want+"\n" || got.status == 0 {
			t.Errorf("%s: got status %d and %q, want %q", args, got.status, got.stderr, want)
		}
	}
	if err := e.Get(t.Context(), client.ObjectKey{Namespace: e.Namespace, Name: "ledger-0"}, &corev1.Pod{}); apierrors.IsNotFound(err) {
		t.Errorf("got %v, want the pod", err)
	}
}
