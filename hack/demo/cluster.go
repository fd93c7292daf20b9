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
	"syscall"

	"github.com/conclave-dev/conclave/internal/testing/program"
)

// cluster is a cluster on this machine in which the demo can inject faults.
type cluster interface {
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

// findCluster returns the throwaway cluster if this machine supports it. Without root, it
// returns the kind cluster of the current kubeconfig.
func findCluster(ctx context.Context, top string) (cluster, error) {
	own := &hackCluster{top: top, tool: filepath.Join(top, "bin", "cluster")}
	if os.Getuid() != 0 {
		kind, err := findKind(ctx)
		if err != nil {
			return nil, fmt.Errorf("a throwaway cluster needs root (sudo make demo), and %w", err)
		}
		return kind, nil
	}
	build := exec.CommandContext(ctx, "go", "-C", filepath.Join(top, "hack", "cluster"), "build", "-o", own.tool, ".")
	if err := run(build); err != nil {
		return nil, err
	}
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
	return command
}

func (c *hackCluster) start(ctx context.Context, out io.Writer) error {
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
	for _, agent := range program.Agents(clusterName) {
		if agent.Pod == pod {
			return syscall.Kill(agent.PID, syscall.SIGKILL)
		}
	}
	return fmt.Errorf("cannot find the agent of pod %s on this machine", pod)
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

// kindCluster is a kind cluster. Its nodes are containers.
type kindCluster struct{ name string }

func findKind(ctx context.Context) (*kindCluster, error) {
	for _, program := range []string{"kubectl", "kind", "docker"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("a kind cluster needs %s, which isn't in PATH", program)
		}
	}
	current, err := exec.CommandContext(ctx, "kubectl", "config", "current-context").Output()
	name, isKind := strings.CutPrefix(strings.TrimSpace(string(current)), "kind-")
	if err != nil || !isKind {
		return nil, errors.New("the current kubeconfig context isn't a kind cluster: create one with kind create cluster")
	}
	return &kindCluster{name}, nil
}

func (c *kindCluster) start(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "using the kind cluster %s\n", c.name)
	return run(c.kubectl(ctx, "get", "nodes"))
}

func (c *kindCluster) load(ctx context.Context, archive string) error {
	return run(exec.CommandContext(ctx, "kind", "load", "image-archive", archive, "--name", c.name))
}

func (c *kindCluster) kubectl(ctx context.Context, arguments ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "kubectl", arguments...)
}

// killAgent finds the agent by the pod's name in its environment.
func (c *kindCluster) killAgent(ctx context.Context, pod, node string) error {
	const script = `for p in /proc/[0-9]*; do
	[ "$(cat $p/comm 2>/dev/null)" = agent ] && tr '\0' '\n' <$p/environ | grep -qx "POD_NAME=$0" && kill -9 ${p#/proc/} && exit 0
done; echo "cannot find the agent of pod $0 on this node" >&2; exit 1`
	return run(exec.CommandContext(ctx, "docker", "exec", node, "bash", "-c", script, pod))
}

func (c *kindCluster) partition(ctx context.Context, node string) error {
	return c.filter(ctx, node, "-I")
}

func (c *kindCluster) heal(ctx context.Context, node string) error { return c.filter(ctx, node, "-D") }

// filter drops packets from and to the other nodes.
func (c *kindCluster) filter(ctx context.Context, node, change string) error {
	for _, rule := range [][]string{{"INPUT", "-i"}, {"OUTPUT", "-o"}, {"FORWARD", "-i"}, {"FORWARD", "-o"}} {
		err := run(exec.CommandContext(ctx, "docker", "exec", node, "iptables", change, rule[0], rule[1], "eth0", "-j", "DROP"))
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *kindCluster) hint() string {
	return "kubectl config current-context      # the kind cluster of the demo"
}

// remove doesn't delete the cluster, because the demo hasn't created it.
func (c *kindCluster) remove(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "removing the demo from the kind cluster %s\n", c.name)
	if err := run(c.kubectl(ctx, "delete", "namespace", namespace, "--ignore-not-found")); err != nil {
		return err
	}
	return run(exec.CommandContext(ctx, "make", "undeploy"))
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
