// Command demo shows Conclave on a cluster: it starts a cluster, installs the operator,
// applies a group of five pods, and takes its coordinator away three times. It fails if
// the wrong pod becomes coordinator.
//
// The cluster keeps running for further experiments; make demo-down removes it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// The names of the cluster, of its namespaces and of the group.
const (
	clusterName       = "demo"
	namespace         = "demo"
	group             = "ledger"
	operatorNamespace = "conclave-system"
	nodes             = 3
)

// The images as they are named on the nodes.
const (
	managerImage = "conclave/manager:demo"
	agentImage   = "conclave/agent:demo"
	workerImage  = "conclave/example-go:demo"
)

func main() {
	down := flag.Bool("down", false, "remove the demo")
	check := flag.Bool("check", false, "only check that this machine can run the demo")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	action := runDemo
	switch {
	case *down:
		action = cleanUp
	case *check:
		action = checkMachine
	}
	if err := action(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func runDemo(ctx context.Context, out io.Writer) error {
	top, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	target, err := findCluster(ctx, top)
	if err != nil {
		return err
	}
	s := &demo{out: newPrinter(out), top: top, cluster: target, start: time.Now()}
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"Build the programs", s.build},
		{"Start a cluster", s.startCluster},
		{"Build the images and load them onto the nodes", s.loadImages},
		{"Install the operator", s.install},
		{"Create a group of five pods", s.applyGroup},
		{"Kill the coordinator's agent with SIGKILL", s.killProcess},
		{"Delete the coordinator's pod by force", s.deletePod},
		{"Isolate the coordinator's node", s.partitionNode},
	} {
		s.heading(step.title)
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	s.printNextSteps()
	return nil
}

// checkMachine fails if this machine can't run the demo, before anything is built.
func checkMachine(ctx context.Context, _ io.Writer) error {
	top, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	_, err = findCluster(ctx, top)
	return err
}

func cleanUp(ctx context.Context, out io.Writer) error {
	top, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	target, err := findCluster(ctx, top)
	if err != nil {
		return err
	}
	return target.remove(ctx, out)
}
