package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The images as they are named on the nodes.
const (
	managerImage = "conclave/manager:chaos"
	agentImage   = "conclave/agent:chaos"
	chaosImage   = "conclave/chaos:chaos"
	clusterName  = "chaos"
)

// cluster is the cluster on which the groups run.
type cluster struct {
	kind       string
	kubeconfig string
}

func newCluster(kind string) (cluster, error) {
	if slices.Contains([]string{"hack", "kind", "current"}, kind) {
		return cluster{kind: kind}, nil
	}
	return cluster{}, fmt.Errorf("-cluster must be hack, kind or current, got %q", kind)
}

// prepare starts the cluster, loads the images, and installs the operator, unless the cluster is the user's own.
func (c *cluster) prepare(ctx context.Context, workloads []string) error {
	if c.kind == "current" {
		return c.deleteGroups(ctx)
	}
	archives, err := buildImages(ctx, workloads)
	if err != nil {
		return err
	}
	if err := c.start(ctx, archives); err != nil {
		return err
	}
	if _, err := execute(ctx, "", nil, "make", "build-installer", "IMG="+managerImage, "AGENT_IMG="+agentImage); err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, "", "apply", "--server-side", "-f", "dist/install.yaml"); err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, "", "wait", "deployment/conclave-manager", "--namespace", "conclave-system", "--for=condition=Available", "--timeout", "5m"); err != nil {
		return err
	}
	return c.deleteGroups(ctx)
}

// deleteGroups deletes all groups of the suite, also those of a run that was killed.
func (c *cluster) deleteGroups(ctx context.Context) error {
	_, err := c.kubectl(ctx, "", "delete", "namespace", "-l", managed, "--ignore-not-found")
	return err
}

// buildImages builds the images of the operator and of the workloads, and returns the archives.
func buildImages(ctx context.Context, workloads []string) (archives []string, err error) {
	images := map[string]string{"cmd/manager": managerImage, "cmd/agent": agentImage, "cmd/chaos": chaosImage}
	for _, name := range workloads {
		images["examples/"+name] = "conclave/" + name + ":chaos"
	}
	for source, tag := range images {
		if _, err := execute(ctx, "", nil, "go", "-C", "hack/image", "run", "-trimpath", ".", "-source", "../..", "-package", "./"+source,
			"-version", "chaos", "-tag", tag, "-output", "../../dist/chaos"); err != nil {
			return nil, err
		}
		archives = append(archives, filepath.Join("dist", "chaos", filepath.Base(source)+".tar"))
	}
	return archives, nil
}

// start starts a throwaway cluster, and loads the images onto the nodes.
func (c *cluster) start(ctx context.Context, archives []string) error {
	var load func(archive string) []string
	if c.kind == "hack" {
		if _, err := execute(ctx, "", nil, "go", "build", "-o", "bin/cluster", "./hack/cluster"); err != nil {
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
	for _, archive := range archives {
		command := load(archive)
		if _, err := execute(ctx, "", nil, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the groups, and the cluster if it is a throwaway cluster.
func (c *cluster) remove(ctx context.Context) error {
	if c.kind != "hack" {
		return c.deleteGroups(ctx)
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

// command is the command line of kubectl with these arguments.
func (c *cluster) command(arguments ...string) []string {
	if c.kind == "hack" {
		return append([]string{"bin/cluster", "kubectl", "--name", clusterName, "--"}, arguments...)
	}
	return append([]string{"kubectl"}, arguments...)
}

// kubectl runs kubectl with this standard input, and returns its output.
func (c *cluster) kubectl(ctx context.Context, input string, arguments ...string) (string, error) {
	command := c.command(arguments...)
	return execute(ctx, input, c.environment(), command[0], command[1:]...)
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
