// Command demo shows Conclave on a cluster: it brings one up, installs the
// operator, applies a group of five pods, and takes its coordinator away three
// times. It fails if the wrong pod follows.
//
// What it brought up stays, so that one can go on trying; make demo-down removes it.
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

// Where it all happens.
const (
	clusterName = "demo"
	namespace   = "demo"
	group       = "ledger"
	system      = "conclave-system"
	nodes       = 3
)

// The images, by the names that they have on the nodes.
const (
	managerImage = "conclave/manager:demo"
	agentImage   = "conclave/agent:demo"
	workerImage  = "conclave/example-go:demo"
)

func main() {
	down := flag.Bool("down", false, "remove what the demo has left")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	act := demonstrate
	if *down {
		act = cleanUp
	}
	if err := act(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demonstrate(ctx context.Context, out io.Writer) error {
	top, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	place, err := findPlace(ctx, top)
	if err != nil {
		return err
	}
	s := &show{out: out, top: top, place: place, begun: time.Now()}
	for _, act := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"A cluster", s.bringUp},
		{"The images, built here and loaded onto its nodes", s.loadImages},
		{"The operator", s.install},
		{"A group of five pods", s.apply},
		{"kill -9 of the coordinator's agent", s.killProcess},
		{"The coordinator's pod is deleted by force", s.deletePod},
		{"The coordinator's node loses its network", s.cutOff},
	} {
		s.heading(act.title)
		if err := act.do(ctx); err != nil {
			return err
		}
	}
	s.farewell()
	return nil
}

func cleanUp(ctx context.Context, out io.Writer) error {
	top, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	place, err := findPlace(ctx, top)
	if err != nil {
		return err
	}
	return place.remove(ctx, out)
}
