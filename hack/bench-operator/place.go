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

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// place is a throwaway cluster of our own.
type place struct {
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

// findPlace says what this machine lacks for a cluster.
func (m *measurer) findPlace(ctx context.Context) (*place, error) {
	p := &place{tool: filepath.Join(m.folder, "cluster"), folder: m.folder, progress: m.progress}
	if _, err := printed(exec.CommandContext(ctx, "go", "-C", "hack/cluster", "build", "-o", p.tool, ".")); err != nil {
		return nil, err
	}
	return p, p.run(ctx, "check")
}

func (p *place) command(ctx context.Context, verb string, arguments ...string) *exec.Cmd {
	return exec.CommandContext(ctx, p.tool, append([]string{verb, "--name", clusterName}, arguments...)...)
}

func (p *place) run(ctx context.Context, verb string, arguments ...string) error {
	_, err := printed(p.command(ctx, verb, arguments...))
	return err
}

// bringUp makes the cluster anew.
func (p *place) bringUp(ctx context.Context) error {
	if err := p.run(ctx, "down"); err != nil { // Whatever an interrupted run has left.
		return err
	}
	up := p.command(ctx, "up", "--nodes", fmt.Sprint(clusterNodes))
	up.Stderr = p.progress
	said, err := up.Output()
	if err != nil {
		return fmt.Errorf("bring up a cluster: %w", err)
	}
	kubeconfig, found := strings.CutPrefix(strings.TrimSpace(string(said)), "export KUBECONFIG=")
	if !found {
		return fmt.Errorf("bring up a cluster: it printed %q, which is no KUBECONFIG to export", said)
	}
	if p.config, err = clientcmd.BuildConfigFromFlags("", strings.Trim(kubeconfig, `'"`)); err != nil {
		return err
	}
	p.config.QPS = -1 // Nobody is to wait for the benchmark.
	return nil
}

// install installs the operator of this repository.
func (p *place) install(ctx context.Context) error {
	for image, source := range map[string]string{managerImage: "cmd/manager", agentImage: "cmd/agent"} {
		top, err := os.Getwd()
		if err != nil {
			return err
		}
		if _, err := printed(exec.CommandContext(ctx, "go", "-C", "hack/image", "run", ".", "-source", top, "-package", "./"+source,
			"-version", "bench", "-tag", image, "-output", p.folder)); err != nil {
			return err
		}
		if err := p.run(ctx, "load", filepath.Join(p.folder, filepath.Base(source)+".tar")); err != nil {
			return err
		}
	}
	if _, err := printed(exec.CommandContext(ctx, "make", "build-installer", "IMG="+managerImage, "AGENT_IMG="+agentImage)); err != nil {
		return err
	}
	if err := p.kubectl(ctx, "apply", "--server-side", "-f", "dist/install.yaml"); err != nil {
		return err
	}
	return p.kubectl(ctx, "wait", "deployment/"+managersName, "--namespace", system, "--for=condition=Available", "--timeout", patience.String())
}

func (p *place) kubectl(ctx context.Context, arguments ...string) error {
	return p.run(ctx, "kubectl", append([]string{"--"}, arguments...)...)
}

// explain is what there is to see after a failure.
func (p *place) explain(ctx context.Context) string {
	var all strings.Builder
	for _, look := range [][]string{
		{"get", "pods", "--all-namespaces", "-o", "wide"},
		{"get", "electiongroup", sample, "--namespace", sampleSpace, "-o", "yaml"},
		{"logs", "--namespace", system, "-l", "app.kubernetes.io/name=conclave", "--tail", "30", "--prefix"},
	} {
		said, err := printed(p.command(ctx, "kubectl", append([]string{"--"}, look...)...))
		fmt.Fprintf(&all, "\nkubectl %s\n%s\n", strings.Join(look, " "), said)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
	}
	return all.String()
}

// remove ends the cluster, also when the benchmark was interrupted.
func (p *place) remove(ctx context.Context) error {
	return errors.Join(p.run(context.WithoutCancel(ctx), "down"))
}
