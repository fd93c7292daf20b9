// Command go takes part in the election of a group's coordinator, and works while it is
// coordinator. Usage: go run ./examples/go GROUP
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/client"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./examples/go GROUP")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := client.Run(ctx, os.Args[1], lead); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// lead runs while this process is coordinator. In a real program, each step passes the
// token to the resource that it changes, which rejects lower tokens: see
// examples/fencing.
func lead(ctx context.Context, token uint64) error {
	fmt.Println("leads with token", token)
	defer func() { fmt.Println("stops:", context.Cause(ctx)) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
			fmt.Println("works with token", token)
		}
	}
}
