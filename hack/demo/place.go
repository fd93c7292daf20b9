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

// place is a cluster on this machine that can be maltreated.
type place interface {
	// bringUp returns when the cluster runs.
	bringUp(ctx context.Context, out io.Writer) error
	load(ctx context.Context, archive string) error
	// kubectl is the command for it, ready to be given arguments.
	kubectl(ctx context.Context, arguments ...string) *exec.Cmd
	killAgent(ctx context.Context, pod, node string) error
	cutOff(ctx context.Context, node string) error
	heal(ctx context.Context, node string) error
	// hint is how a person gets at it.
	hint() string
	remove(ctx context.Context, out io.Writer) error
}

// findPlace takes the throwaway cluster if this machine can have one, and else
// a kind cluster, if the current kubeconfig leads to one.
func findPlace(ctx context.Context, top string) (place, error) {
	own := &ownCluster{top: top, tool: filepath.Join(top, "bin", "cluster")}
	if os.Getuid() != 0 {
		kind, err := findKind(ctx)
		if err != nil {
			return nil, fmt.Errorf("a cluster of its own takes root (sudo make demo), and %w", err)
		}
		return kind, nil
	}
	build := exec.CommandContext(ctx, "go", "-C", filepath.Join(top, "hack", "cluster"), "build", "-o", own.tool, ".")
	if err := quietly(build); err != nil {
		return nil, err
	}
	if err := quietly(own.command(ctx, "check")); err != nil {
		return nil, err
	}
	return own, nil
}

// ownCluster is the throwaway cluster of hack/cluster.
type ownCluster struct{ top, tool string }

func (c *ownCluster) command(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, c.tool, append(arguments[:1:1], append([]string{"--name", clusterName}, arguments[1:]...)...)...)
	command.Dir = c.top
	return command
}

func (c *ownCluster) bringUp(ctx context.Context, out io.Writer) error {
	up := c.command(ctx, "up", "--nodes", fmt.Sprint(nodes))
	up.Stderr = out
	return up.Run()
}

func (c *ownCluster) load(ctx context.Context, archive string) error {
	return quietly(c.command(ctx, "load", archive))
}

func (c *ownCluster) kubectl(ctx context.Context, arguments ...string) *exec.Cmd {
	return c.command(ctx, append([]string{"kubectl", "--"}, arguments...)...)
}

func (c *ownCluster) killAgent(_ context.Context, pod, _ string) error {
	for _, agent := range program.Agents(clusterName) {
		if agent.Pod == pod {
			return syscall.Kill(agent.PID, syscall.SIGKILL)
		}
	}
	return fmt.Errorf("no agent of %s runs on this machine", pod)
}

func (c *ownCluster) cutOff(ctx context.Context, node string) error {
	return quietly(c.command(ctx, "partition", node))
}

func (c *ownCluster) heal(ctx context.Context, node string) error {
	return quietly(c.command(ctx, "heal", node))
}

func (c *ownCluster) hint() string {
	return fmt.Sprintf("eval \"$(bin/cluster up --name %s)\"      # the KUBECONFIG for kubectl", clusterName)
}

func (c *ownCluster) remove(ctx context.Context, out io.Writer) error {
	down := c.command(ctx, "down")
	down.Stderr = out
	return down.Run()
}

// kindCluster is one of kind's, whose nodes are containers.
type kindCluster struct{ name string }

func findKind(ctx context.Context) (*kindCluster, error) {
	for _, program := range []string{"kubectl", "kind", "docker"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("a kind cluster takes %s, which isn't in the PATH", program)
		}
	}
	current, err := exec.CommandContext(ctx, "kubectl", "config", "current-context").Output()
	name, isKind := strings.CutPrefix(strings.TrimSpace(string(current)), "kind-")
	if err != nil || !isKind {
		return nil, errors.New("the current kubeconfig leads to no kind cluster: kind create cluster makes one")
	}
	return &kindCluster{name}, nil
}

func (c *kindCluster) bringUp(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "takes the kind cluster %s\n", c.name)
	return quietly(c.kubectl(ctx, "get", "nodes"))
}

func (c *kindCluster) load(ctx context.Context, archive string) error {
	return quietly(exec.CommandContext(ctx, "kind", "load", "image-archive", archive, "--name", c.name))
}

func (c *kindCluster) kubectl(ctx context.Context, arguments ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "kubectl", arguments...)
}

// killAgent looks for the agent by the name of its pod, in its environment.
func (c *kindCluster) killAgent(ctx context.Context, pod, node string) error {
	const script = `for p in /proc/[0-9]*; do
	[ "$(cat $p/comm 2>/dev/null)" = agent ] && tr '\0' '\n' <$p/environ | grep -qx "POD_NAME=$0" && kill -9 ${p#/proc/} && exit 0
done; echo "no agent of $0 runs here" >&2; exit 1`
	return quietly(exec.CommandContext(ctx, "docker", "exec", node, "bash", "-c", script, pod))
}

func (c *kindCluster) cutOff(ctx context.Context, node string) error {
	return c.filter(ctx, node, "-I")
}

func (c *kindCluster) heal(ctx context.Context, node string) error { return c.filter(ctx, node, "-D") }

// filter drops what comes in from the other nodes or goes out to them.
func (c *kindCluster) filter(ctx context.Context, node, change string) error {
	for _, rule := range [][]string{{"INPUT", "-i"}, {"OUTPUT", "-o"}, {"FORWARD", "-i"}, {"FORWARD", "-o"}} {
		err := quietly(exec.CommandContext(ctx, "docker", "exec", node, "iptables", change, rule[0], rule[1], "eth0", "-j", "DROP"))
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *kindCluster) hint() string {
	return "kubectl config current-context      # the kind cluster it is in"
}

// remove leaves the cluster, which isn't the demo's.
func (c *kindCluster) remove(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "removes the demo from the kind cluster %s\n", c.name)
	if err := quietly(c.kubectl(ctx, "delete", "namespace", namespace, "--ignore-not-found")); err != nil {
		return err
	}
	return quietly(exec.CommandContext(ctx, "make", "undeploy"))
}

// quietly runs a command that says something only when it fails.
func quietly(command *exec.Cmd) error {
	said, err := command.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	if last := strings.TrimPrefix(lines[len(lines)-1], "cluster: "); last != "" {
		return errors.New(last)
	}
	return fmt.Errorf("%s: %w", strings.Join(command.Args, " "), err)
}
