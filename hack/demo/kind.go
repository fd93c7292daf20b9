package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

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
		return nil, errors.New("the current kubeconfig context isn't a kind cluster: create one with kind create cluster --config .github/kind.yaml")
	}
	return &kindCluster{name}, nil
}

func (*kindCluster) build(context.Context, io.Writer) error { return nil }

func (c *kindCluster) start(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "using the kind cluster %s\n", c.name)
	return run(c.kubectl(ctx, "get", "nodes"))
}

func (c *kindCluster) load(ctx context.Context, archive string) error {
	return run(exec.CommandContext(ctx, "kind", "load", "image-archive", archive, "--name", c.name))
}

func (c *kindCluster) kubectl(ctx context.Context, arguments ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "kubectl", append([]string{"--context", c.context()}, arguments...)...)
}

// context is the kubeconfig context. Commands name it, because the current context may change during the demo.
func (c *kindCluster) context() string { return "kind-" + c.name }

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
	return run(exec.CommandContext(ctx, "make", "undeploy", "KUBECTL=kubectl --context "+c.context()))
}
