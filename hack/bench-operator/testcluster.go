package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// testCluster is a cluster that hack/cluster runs for the benchmark.
type testCluster struct {
	tool, folder string
	progress     io.Writer
	config       *rest.Config
}

const (
	clusterName  = "bench"
	clusterNodes = 3
	managerImage = "conclave/manager:bench"
	agentImage   = "conclave/agent:bench"
)

// newTestCluster returns an error if this machine cannot run a cluster. It doesn't start
// the cluster.
func (r *runner) newTestCluster(ctx context.Context) (*testCluster, error) {
	c := &testCluster{tool: filepath.Join(r.folder, "cluster"), folder: r.folder, progress: r.progress}
	if _, err := outputOf(exec.CommandContext(ctx, "go", "build", "-o", c.tool, "./hack/cluster")); err != nil {
		return nil, err
	}
	return c, c.run(ctx, "check")
}

func (c *testCluster) command(ctx context.Context, verb string, arguments ...string) *exec.Cmd {
	return exec.CommandContext(ctx, c.tool, append([]string{verb, "--name", clusterName}, arguments...)...)
}

func (c *testCluster) run(ctx context.Context, verb string, arguments ...string) error {
	_, err := outputOf(c.command(ctx, verb, arguments...))
	return err
}

// start starts a new cluster.
func (c *testCluster) start(ctx context.Context) error {
	if err := c.run(ctx, "down"); err != nil { // An interrupted run may have left a cluster.
		return err
	}
	up := c.command(ctx, "up", "--nodes", fmt.Sprint(clusterNodes))
	up.Stderr = c.progress
	output, err := up.Output()
	if err != nil {
		return fmt.Errorf("cannot start a cluster: %w", err)
	}
	kubeconfig, found := strings.CutPrefix(strings.TrimSpace(string(output)), "export KUBECONFIG=")
	if !found {
		return fmt.Errorf("cannot start a cluster: output must be export KUBECONFIG=..., got %q", output)
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", strings.Trim(kubeconfig, `'"`)); err != nil {
		return err
	}
	c.config.QPS = -1 // Disable client-side rate limits.
	return nil
}

// install builds the images and installs the operator.
func (c *testCluster) install(ctx context.Context) error {
	for image, source := range map[string]string{managerImage: "cmd/manager", agentImage: "cmd/agent"} {
		top, err := os.Getwd()
		if err != nil {
			return err
		}
		if _, err := outputOf(exec.CommandContext(ctx, "go", "-C", "hack/image", "run", ".", "-source", top, "-package", "./"+source,
			"-version", "bench", "-tag", image, "-output", c.folder)); err != nil {
			return err
		}
		if err := c.run(ctx, "load", filepath.Join(c.folder, filepath.Base(source)+".tar")); err != nil {
			return err
		}
	}
	if _, err := outputOf(exec.CommandContext(ctx, "make", "build-installer", "IMG="+managerImage, "AGENT_IMG="+agentImage)); err != nil {
		return err
	}
	if err := c.kubectl(ctx, "apply", "--server-side", "-f", "dist/install.yaml"); err != nil {
		return err
	}
	return c.kubectl(ctx, "wait", "deployment/"+managerName, "--namespace", system, "--for=condition=Available", "--timeout", waitMax.String())
}

func (c *testCluster) kubectl(ctx context.Context, arguments ...string) error {
	return c.run(ctx, "kubectl", append([]string{"--"}, arguments...)...)
}

// diagnostics describes the state of the cluster after a failure.
func (c *testCluster) diagnostics(ctx context.Context) string {
	var all strings.Builder
	for _, arguments := range [][]string{
		{"get", "pods", "--all-namespaces", "-o", "wide"},
		{"get", "electiongroup", sample, "--namespace", sampleNamespace, "-o", "yaml"},
		{"logs", "--namespace", system, "-l", "app.kubernetes.io/name=conclave", "--tail", "30", "--prefix"},
	} {
		output, err := outputOf(c.command(ctx, "kubectl", append([]string{"--"}, arguments...)...))
		fmt.Fprintf(&all, "\nkubectl %s\n%s\n", strings.Join(arguments, " "), output)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
	}
	return all.String()
}

// remove removes the cluster, even if the benchmark was interrupted.
func (c *testCluster) remove(ctx context.Context) error {
	return c.run(context.WithoutCancel(ctx), "down")
}
