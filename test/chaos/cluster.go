package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// The images as they are named on the nodes.
const (
	managerImage = "conclave/manager:chaos"
	agentImage   = "conclave/agent:chaos"
	clusterName  = "chaos"
)

// cluster is the cluster on which the groups run.
type cluster struct {
	kind string
	// application is an image that does nothing, which the nodes have.
	application string
	kubeconfig  string
}

func newCluster(kind string) (cluster, error) {
	switch kind {
	case "hack":
		return cluster{kind: kind, application: "conclave.dev/hack/pause:1"}, nil
	case "kind", "current":
		return cluster{kind: kind, application: "registry.k8s.io/pause:3.10"}, nil
	}
	return cluster{}, fmt.Errorf("-cluster must be hack, kind or current, got %q", kind)
}

// prepare starts the cluster and installs the operator, unless the cluster is the user's own.
func (c *cluster) prepare(ctx context.Context) error {
	if c.kind == "current" {
		return nil
	}
	images := []string{"IMG=" + managerImage, "AGENT_IMG=" + agentImage}
	if _, err := execute(ctx, "", nil, "make", append([]string{"image"}, images...)...); err != nil {
		return err
	}
	if err := c.start(ctx); err != nil {
		return err
	}
	if _, err := execute(ctx, "", nil, "make", append([]string{"build-installer"}, images...)...); err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, "", "apply", "--server-side", "-f", "dist/install.yaml"); err != nil {
		return err
	}
	_, err := c.kubectl(ctx, "", "wait", "deployment/conclave-manager", "--namespace", "conclave-system", "--for=condition=Available", "--timeout", "5m")
	return err
}

// start starts a throwaway cluster, and loads the images onto the nodes.
func (c *cluster) start(ctx context.Context) error {
	var load func(archive string) []string
	if c.kind == "hack" {
		if _, err := execute(ctx, "", nil, "go", "-C", "hack/cluster", "build", "-o", "../../bin/cluster", "."); err != nil {
			return err
		}
		output, err := execute(ctx, "", nil, "bin/cluster", "up", "--nodes", "3", "--name", clusterName)
		if err != nil {
			return err
		}
		c.kubeconfig = strings.TrimPrefix(output, "export ")
		load = func(archive string) []string { return []string{"bin/cluster", "load", archive, "--name", clusterName} }
	} else {
		current, err := c.kubectl(ctx, "", "config", "current-context")
		name, isKind := strings.CutPrefix(current, "kind-")
		if err != nil || !isKind {
			return errors.New("the current kubeconfig context isn't a kind cluster: create one with kind create cluster")
		}
		load = func(archive string) []string {
			return []string{"kind", "load", "image-archive", archive, "--name", name}
		}
	}
	for _, archive := range []string{"dist/manager.tar", "dist/agent.tar"} {
		command := load(archive)
		if _, err := execute(ctx, "", nil, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) remove(ctx context.Context) error {
	if c.kind != "hack" {
		_, err := c.kubectl(ctx, "", "delete", "namespace", namespace, "--ignore-not-found")
		return err
	}
	_, err := execute(ctx, "", nil, "bin/cluster", "down", "--name", clusterName)
	return err
}

// environment is the environment of commands that use the cluster.
func (c *cluster) environment() []string {
	if c.kubeconfig == "" {
		return os.Environ()
	}
	return append(os.Environ(), c.kubeconfig)
}

// kubectl runs kubectl with this standard input, and returns its output.
func (c *cluster) kubectl(ctx context.Context, input string, arguments ...string) (string, error) {
	if c.kind == "hack" {
		return execute(ctx, input, c.environment(), "bin/cluster", append([]string{"kubectl", "--name", clusterName, "--"}, arguments...)...)
	}
	return execute(ctx, input, c.environment(), "kubectl", arguments...)
}

// execute runs a command and returns its output. The error has the last line of its error output.
func execute(ctx context.Context, input string, environment []string, name string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, name, arguments...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr, command.Env = strings.NewReader(input), &stdout, &stderr, environment
	if err := command.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, lines[len(lines)-1])
	}
	return strings.TrimSpace(stdout.String()), nil
}
