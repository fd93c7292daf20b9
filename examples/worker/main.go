// Command worker takes part in the elections of groups, works while it is coordinator, and prints who is. It is the
// application of the samples in config/samples. Usage: go run ./examples/worker GROUP...
//
// Without a group, it knows nothing of elections, and works until it is told to end: conclave-agent exec runs it only
// while its pod is coordinator.
//
// If the environment variable LISTEN has an address, such as :8080, it answers requests there, with 503 while it
// doesn't lead: a Service of a group leads to the coordinator.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/client"
)

func main() {
	groups := os.Args[1:]
	token, err := strconv.ParseUint(os.Getenv("CONCLAVE_TOKEN"), 10, 64)
	if len(groups) == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "usage: worker GROUP..., or conclave-agent exec --group GROUP -- worker")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if address := os.Getenv("LISTEN"); address != "" {
		server := &http.Server{Addr: address, Handler: http.HandlerFunc(answer), ReadHeaderTimeout: 5 * time.Second}
		go func() {
			fmt.Fprintln(os.Stderr, server.ListenAndServe())
			os.Exit(1)
		}()
	}
	if len(groups) == 0 {
		_ = lead(os.Getenv("CONCLAVE_GROUP"))(ctx, token) // It returns nil.
		return
	}
	var running sync.WaitGroup
	for _, group := range groups {
		running.Go(func() { repeat(ctx, group, func() error { return client.Run(ctx, group, lead(group)) }) })
		running.Go(func() { repeat(ctx, group, func() error { return report(ctx, group) }) })
	}
	running.Wait()
}

// tenure is a time in which this process leads a group.
type tenure struct {
	ctx      context.Context
	group    string
	token    uint64
	requests atomic.Int64
}

// latest is the latest tenure of this process.
var latest atomic.Pointer[tenure]

func answer(w http.ResponseWriter, _ *http.Request) {
	t := latest.Load()
	if t == nil || t.ctx.Err() != nil {
		http.Error(w, "this pod is not the coordinator", http.StatusServiceUnavailable)
		return
	}
	pod, _ := os.Hostname() // Without a name, the answer is still useful.
	fmt.Fprintf(w, `{"pod": %q, "group": %q, "token": %d, "number": %d}`+"\n", pod, t.group, t.token, t.requests.Add(1))
}

// repeat calls f until ctx ends. Run and Watch fail while the agent doesn't have the group: the operator may not have
// published it yet.
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

// lead returns the function that runs while this process is coordinator. In a real program, each step passes the token
// to the resource that it changes, which rejects lower tokens: see examples/fencing.
func lead(group string) func(ctx context.Context, token uint64) error {
	return func(ctx context.Context, token uint64) error {
		fmt.Printf("%s: leads with token %d\n", group, token)
		latest.Store(&tenure{ctx: ctx, group: group, token: token})
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
