package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/conclave-dev/conclave/internal/testing/program"
)

// cluster is a cluster on this machine in which the demo can inject faults.
type cluster interface {
	// build builds the programs that start needs.
	build(ctx context.Context, out io.Writer) error
	// start returns when the cluster is running.
	start(ctx context.Context, out io.Writer) error
	load(ctx context.Context, archive string) error
	// kubectl returns a kubectl command for the cluster.
	kubectl(ctx context.Context, arguments ...string) *exec.Cmd
	killAgent(ctx context.Context, pod, node string) error
	partition(ctx context.Context, node string) error
	heal(ctx context.Context, node string) error
	// hint is a command by which users access the cluster.
	hint() string
	remove(ctx context.Context, out io.Writer) error
}

// findCluster returns the cluster that is named by the environment variable CLUSTER: hack is the throwaway cluster, kind is the
// kind cluster of the current kubeconfig. By default, it is the throwaway cluster for root, and kind for other users.
func findCluster(ctx context.Context, top string) (cluster, error) {
	wanted, root := os.Getenv("CLUSTER"), os.Getuid() == 0
	switch {
	case wanted == "kind":
		return findKind(ctx)
	case wanted != "" && wanted != "hack":
		return nil, fmt.Errorf("CLUSTER must be hack or kind, got %q", wanted)
	case !root && wanted == "hack":
		return nil, errors.New("a throwaway cluster needs root: sudo make demo, or, with kind and Docker, make demo CLUSTER=kind")
	case !root:
		kind, err := findKind(ctx)
		if err != nil {
			return nil, fmt.Errorf("a throwaway cluster needs root (sudo make demo), and %w", err)
		}
		return kind, nil
	}
	own := &hackCluster{top: top, tool: filepath.Join(top, "bin", "cluster")}
	if err := run(own.command(ctx, "check")); err != nil {
		return nil, err
	}
	return own, nil
}

// hackCluster is the throwaway cluster of hack/cluster.
type hackCluster struct{ top, tool string }

func (c *hackCluster) command(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, c.tool, append(arguments[:1:1], append([]string{"--name", clusterName}, arguments[1:]...)...)...)
	command.Dir = c.top
	return interruptible(command)
}

func (c *hackCluster) start(ctx context.Context, out io.Writer) error {
	// A demo that was killed may have left a node isolated. Otherwise, or without a cluster, there is nothing to heal.
	for i := range nodes {
		_ = c.heal(ctx, fmt.Sprintf("node-%d", i+1))
	}
	up := c.command(ctx, "up", "--nodes", fmt.Sprint(nodes))
	up.Stderr = out
	return up.Run()
}

func (c *hackCluster) load(ctx context.Context, archive string) error {
	return run(c.command(ctx, "load", archive))
}

func (c *hackCluster) kubectl(ctx context.Context, arguments ...string) *exec.Cmd {
	return c.command(ctx, append([]string{"kubectl", "--"}, arguments...)...)
}

func (c *hackCluster) killAgent(_ context.Context, pod, _ string) error {
	_, err := program.KillAgent(clusterName, pod)
	return err
}

func (c *hackCluster) partition(ctx context.Context, node string) error {
	return run(c.command(ctx, "partition", node))
}

func (c *hackCluster) heal(ctx context.Context, node string) error {
	return run(c.command(ctx, "heal", node))
}

func (c *hackCluster) hint() string {
	return fmt.Sprintf("eval \"$(bin/cluster up --name %s)\"      # sets KUBECONFIG", clusterName)
}

func (c *hackCluster) remove(ctx context.Context, out io.Writer) error {
	down := c.command(ctx, "down")
	down.Stderr = out
	return down.Run()
}

// run runs a command and returns the last line of its output as the error if it fails.
func run(command *exec.Cmd) error {
	output, err := command.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	if last := strings.TrimPrefix(lines[len(lines)-1], "cluster: "); last != "" {
		return errors.New(last)
	}
	return fmt.Errorf("%s: %w", strings.Join(command.Args, " "), err)
}
