// Command demo shows Conclave on a cluster: it starts a cluster, installs the operator,
// applies the lock service of the examples, and takes its coordinator away three times. It
// fails if the wrong pod becomes coordinator, or if a lock was held twice.
//
// The cluster keeps running for further experiments; make demo-down removes it.
package main

import (
	"context"
	"flag"
	"fmt"
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
	group             = "lock-service"
	operatorNamespace = "conclave-system"
	nodes             = 4 // One for each pod of the group, and one for the ledger.
)

// The images as they are named on the nodes.
const (
	managerImage     = "conclave/manager:demo"
	agentImage       = "conclave/agent:demo"
	lockServiceImage = "conclave/lock-service:example"
)

func main() {
	down := flag.Bool("down", false, "remove the demo")
	check := flag.Bool("check", false, "only check that this machine can run the demo")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // A second signal ends the demo at once.
	if err := runOrRemove(ctx, *down, *check); err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "demo: interrupted; "+makeAgain("demo")+" continues, and "+makeAgain("demo-down")+" removes it")
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// runOrRemove fails if this machine can't run the demo, before anything is built.
func runOrRemove(ctx context.Context, remove, onlyCheck bool) error {
	top, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	target, err := findCluster(ctx, top)
	switch {
	case err != nil || onlyCheck:
		return err
	case remove:
		return target.remove(ctx, os.Stdout)
	}
	return runDemo(ctx, target, top)
}

func runDemo(ctx context.Context, target cluster, top string) error {
	running, err := lock()
	if err != nil {
		return err
	}
	defer running.Close()
	s := &demo{out: os.Stdout, top: top, cluster: target, start: time.Now()}
	ctx, cancel := context.WithCancel(ctx)
	defer s.background.Wait() // Otherwise, kubectl would run on after the demo.
	defer cancel()
	steps := []step{
		// The images come first: they are small, and the cluster's programs share most of their packages.
		{"Build the images", s.buildImages},
		{"Build the programs of the cluster", func(ctx context.Context) error { return target.build(ctx, os.Stdout) }},
		{"Start a cluster", s.startCluster},
		{"Load the images onto the nodes", s.loadImages},
		{"Install the operator", s.install},
		{"Create a lock service: three pods, and a ledger that checks their locks", s.applyGroup},
		{"Kill the coordinator's agent with SIGKILL", s.killProcess},
		{"Delete the coordinator's pod by force", s.deletePod},
		{"Isolate the coordinator's node", s.partitionNode},
	}
	for _, step := range steps {
		s.heading(step.title)
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	s.printNextSteps()
	return nil
}

// step is a part of the demo.
type step struct {
	title string
	do    func(context.Context) error
}
