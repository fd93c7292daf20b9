package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/policyrules"
)

// testNetworkPolicies checks that the policy in docs/install.md, and that of the manager, admit what agents need in a
// namespace that denies everything by default, and that without it the plugin finds the reason.
func testNetworkPolicies(e env) {
	const namespace, name = "conclave-guarded", "guarded"
	e.kubectl("create", "namespace", namespace)
	e.t.Cleanup(func() { e.kubectl("delete", "namespace", namespace, "--wait=false") })
	e.enforcePolicies()
	policy := filepath.Join(e.t.TempDir(), "policy.yaml")
	must.Succeed(e.t, os.WriteFile(policy, []byte(documentedPolicy(e.t)), 0o600))
	e.kubectl("apply", "--namespace", namespace, "-f", policy, "-f", "testdata/policies.yaml")
	table := func() string { return e.groupIn(namespace, name).rows() }
	const all = "guarded-2 Coordinator, guarded-1 Normal, guarded-0 Normal"
	e.waitUntil(defaultTimeout, "all members follow guarded-2", func() bool { return table() == all })

	term := e.groupIn(namespace, name).Status.Term
	e.kubectl("delete", "pod", "guarded-2", "--namespace", namespace, "--grace-period=0", "--force")
	e.waitUntil(defaultTimeout, "the next guarded-2 is coordinator", func() bool {
		return table() == all && e.groupIn(namespace, name).Status.Term > term
	})

	e.kubectl("delete", "--namespace", namespace, "-f", policy)
	e.waitUntil(defaultTimeout, "without the policy, nobody reaches the agents", func() bool {
		return strings.Count(table(), "Unreachable") == 3
	})
	command := exec.Command(e.plugin, "check", name, "--namespace", namespace)
	command.Env = append(os.Environ(), e.environment...)
	output, err := command.CombinedOutput()
	if err == nil {
		e.t.Errorf("got no failure of check, want one:\n%s", output)
	}
	requireContains(e.t, string(output), "default-deny")

	e.kubectl("apply", "--namespace", namespace, "-f", policy)
	e.waitUntil(defaultTimeout, "all members follow guarded-2 with the policy", func() bool { return table() == all })
}

// documentedPolicy returns the policy for agents in docs/install.md.
func documentedPolicy(t *testing.T) string {
	t.Helper()
	text := must.ReadFile(t, filepath.Join(repositoryRoot, "docs", "install.md"))
	_, section, _ := strings.Cut(string(text), "\n## Network policies\n")
	_, block, _ := strings.Cut(section, "```yaml\n")
	policy, _, found := strings.Cut(block, "```\n")
	if !found {
		t.Fatal("docs/install.md must have a NetworkPolicy below Network policies")
	}
	return policy
}

// enforcePolicies enforces the NetworkPolicies of the cluster until the test ends.
func (e env) enforcePolicies() {
	e.t.Helper()
	_, kubeconfig, _ := strings.Cut(e.environment[0], "=")
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must.Succeed(e.t, err)
	client, err := kubernetes.NewForConfig(config)
	must.Succeed(e.t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		applied := ""
		for {
			rules, err := policyRules(ctx, client)
			if err == nil && rules != applied {
				err = applyRules(e.networks(), rules)
				applied = rules
			}
			if err != nil && ctx.Err() == nil {
				ended <- err
				return
			}
			select {
			case <-ctx.Done():
				ended <- applyRules(e.networks(), fmt.Sprintf("table %[1]s\ndelete table %[1]s\n", policyrules.Table))
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	e.t.Cleanup(func() {
		stop()
		expect.Succeedf(e.t, <-ended, "cannot enforce the NetworkPolicies")
	})
}

// policyRules returns the rules for the present state of the cluster.
func policyRules(ctx context.Context, client kubernetes.Interface) (string, error) {
	policies, err := client.NetworkingV1().NetworkPolicies("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	return policyrules.Rules(
		&policyrules.Cluster{Policies: policies.Items, Pods: pods.Items, Namespaces: namespaces.Items})
}

// applyRules applies rules in network namespaces.
func applyRules(networks []string, rules string) error {
	if len(networks) == 0 {
		return errors.New("found no network namespaces of nodes")
	}
	for _, network := range networks {
		command := exec.Command("nsenter", "--net="+network, "nft", "--file", "-")
		command.Stdin = strings.NewReader(rules)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("nft in %s: %w\n%s", network, err, output)
		}
	}
	return nil
}
