package manifests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Without the operator, a pod with the finalizer of a group in Strict mode can't be deleted.
func TestPodsOfStrictGroupsAreNamed(t *testing.T) {
	dependOn(t, "hack/held")
	for _, c := range []struct{ name, namespaces, pods, want string }{
		{"no pods", "", "", ""},
		{"pods with other finalizers", "", "bank ledger-0 \nshop cart-0 example.org/confirm-stopped.conclave.dev/cart batch.kubernetes.io/job-tracking", ""},
		{
			"pods of Strict groups", "", "bank mail-0 \nbank ledger-0 batch.kubernetes.io/job-tracking confirm-stopped.conclave.dev/ledger\nshop cart-0 confirm-stopped.conclave.dev/cart",
			"2 pod(s), such as bank/ledger-0, belong to a group in Strict mode: without the operator, they cannot be deleted. " +
				"Delete each such group first (kubectl delete electiongroup ledger --namespace bank), and wait until its pods have no finalizer\n",
		},
		{
			"in one of the namespaces", "bank,shop", "shop cart-0 confirm-stopped.conclave.dev/cart",
			"1 pod(s), such as shop/cart-0, belong to a group in Strict mode: without the operator, they cannot be deleted. " +
				"Delete each such group first (kubectl delete electiongroup cart --namespace shop), and wait until its pods have no finalizer\n",
		},
		{"the API server doesn't respond", "", "fail", "cannot connect\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			kubectl := filepath.Join(folder, "kubectl")
			script := fmt.Sprintf("#!/bin/sh\necho \"$3\" >>%s/scopes\nif [ '%s' = fail ]; then echo cannot connect >&2; exit 1; fi\nprintf '%%b\\n' '%s'\n", folder, c.pods, c.pods)
			if err := os.WriteFile(kubectl, []byte(script), 0o700); err != nil { //nolint:gosec // It is a program.
				t.Fatal(err)
			}
			command := exec.CommandContext(t.Context(), filepath.Join(root, "hack/held"))
			command.Env = append(os.Environ(), "KUBECTL="+kubectl, "WATCH_NAMESPACES="+c.namespaces)
			output, err := command.CombinedOutput()
			if string(output) != c.want || (err == nil) != (c.want == "") {
				t.Errorf("got %q (%v), want %q", output, err, c.want)
			}
			scopes, err := os.ReadFile(filepath.Join(folder, "scopes")) //nolint:gosec // It is in the test's folder.
			if err != nil {
				t.Fatal(err)
			}
			if want := "--all-namespaces\n"; c.namespaces == "" && string(scopes) != want {
				t.Errorf("got pods listed with %q, want %q", scopes, want)
			}
			if c.namespaces != "" && !strings.HasPrefix(string(scopes), "--namespace=bank\n") {
				t.Errorf("got pods listed with %q, want those of bank first", scopes)
			}
		})
	}
}
