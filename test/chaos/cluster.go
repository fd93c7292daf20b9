package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/conclave-dev/conclave/internal/chaos/kindnodes"
)

// imageOf returns the image of a program as it is named on the nodes.
func imageOf(program string) string { return "conclave/" + program + ":chaos" }

// cluster is the cluster on which the groups run.
type cluster struct{ kind string }

func newCluster(kind string) (cluster, error) {
	if kind == "kind" || kind == "current" {
		return cluster{kind: kind}, nil
	}
	return cluster{}, fmt.Errorf("-cluster must be kind or current, got %q", kind)
}

// prepare loads the images of the operator and of these programs, and installs the operator, unless it runs in the
// cluster already.
func (c *cluster) prepare(ctx context.Context, programs ...string) error {
	if c.kind == "current" {
		return c.deleteGroups(ctx)
	}
	archives, err := buildImages(ctx, append(programs, "cmd/manager", "cmd/agent"))
	if err != nil {
		return err
	}
	if err := c.load(ctx, archives); err != nil {
		return err
	}
	if _, err := execute(ctx, "", "make", "build-installer", "IMG="+imageOf("manager"),
		"AGENT_IMG="+imageOf("agent")); err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, "", "apply", "--server-side", "--force-conflicts", "-f", "dist/install.yaml"); err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, "", "wait", "deployment/conclave-manager", "--namespace", "conclave-system",
		"--for=condition=Available", "--timeout", "5m"); err != nil {
		return err
	}
	return c.deleteGroups(ctx)
}

// deleteGroups deletes all groups of the suite, also those of a run that was killed.
func (c *cluster) deleteGroups(ctx context.Context) error {
	_, err := c.kubectl(ctx, "", "delete", "namespace", "-l", managed, "--ignore-not-found")
	return err
}

// buildImages builds the images of programs, and returns the archives.
func buildImages(ctx context.Context, programs []string) (archives []string, err error) {
	for _, program := range programs {
		name := filepath.Base(program)
		if _, err := execute(ctx, "", "go", "-C", "hack/image", "run", "-trimpath", ".", "-source", "../..",
			"-package", "./"+program, "-version", "chaos", "-tag", imageOf(name), "-output", "../../dist/chaos"); err != nil {
			return nil, err
		}
		archives = append(archives, filepath.Join("dist", "chaos", name+".tar"))
	}
	return archives, nil
}

// load loads images onto the nodes of the kind cluster.
func (c *cluster) load(ctx context.Context, archives []string) error {
	current, err := c.kubectl(ctx, "", "config", "current-context")
	name, isKind := strings.CutPrefix(current, "kind-")
	if err != nil || !isKind {
		return errors.New(`the current kubeconfig context isn't a kind cluster: create one with eval "$(hack/kind/up)"`)
	}
	for _, archive := range archives {
		if _, err := execute(ctx, "", "kind", "load", "image-archive", archive, "--name", name); err != nil {
			return err
		}
	}
	return nil
}

// delays reports whether the nodes can delay packets. The command refuses that by name if they can't.
func (c *cluster) delays(ctx context.Context, machines string) (bool, error) {
	if machines == "" {
		return false, nil
	}
	node, err := c.kubectl(ctx, "", "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
	nodes := kindnodes.Nodes{Runtime: machines}
	return err == nil && nodes.NotDelayed(ctx, node) == "", err
}

// kubectl runs kubectl with this standard input, and returns its output.
func (c *cluster) kubectl(ctx context.Context, input string, arguments ...string) (string, error) {
	return execute(ctx, input, "kubectl", arguments...)
}

// execute runs a command and returns its output. The error has the last line of its error output.
func execute(ctx context.Context, input, name string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, name, arguments...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := command.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, lines[len(lines)-1])
	}
	return strings.TrimSpace(stdout.String()), nil
}
