// Command worker takes part in the elections of groups, works while it is coordinator, and prints who is. It is the application of
// the samples in config/samples. Usage: go run ./examples/worker GROUP...
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/client"
)

func main() {
	groups := os.Args[1:]
	if len(groups) == 0 {
		fmt.Fprintln(os.Stderr, "usage: worker GROUP...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var running sync.WaitGroup
	for _, group := range groups {
		running.Go(func() { repeat(ctx, group, func() error { return client.Run(ctx, group, lead(group)) }) })
		running.Go(func() { repeat(ctx, group, func() error { return report(ctx, group) }) })
	}
	running.Wait()
}

// repeat calls f until ctx ends. Run and Watch fail while the agent doesn't have the group: the operator may not have published it yet.
func repeat(ctx context.Context, group string, f func() error) {
	for ctx.Err() == nil {
		if err := f(); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", group, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// lead returns the function that runs while this process is coordinator. In a real program, each step passes the token to the
// resource that it changes, which rejects lower tokens: see examples/fencing.
func lead(group string) func(ctx context.Context, token uint64) error {
	return func(ctx context.Context, token uint64) error {
		fmt.Printf("%s: leads with token %d\n", group, token)
		defer func() { fmt.Printf("%s: stops: %v\n", group, context.Cause(ctx)) }()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(200 * time.Millisecond):
				fmt.Printf("%s: works with token %d\n", group, token)
			}
		}
	}
}

// report prints each new coordinator.
func report(ctx context.Context, group string) error {
	last := ""
	for state, err := range client.Watch(ctx, group) {
		switch {
		case err != nil:
			return err
		case state.Coordinator != last && state.Coordinator != "":
			last = state.Coordinator
			fmt.Printf("%s: the coordinator is %s\n", group, last)
		}
	}
	return nil
}
