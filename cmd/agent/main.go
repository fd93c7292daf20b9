// Command conclave-agent takes part in elections.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
)

func main() {
	path := flag.String("config", "agent.yaml", "file")
	verbose := flag.Bool("verbose", false, "log more")
	flag.Parse()
	if err := run(context.Background(), *path, logger(*verbose)); err != nil {
		fmt.Fprintln(os.Stderr, "conclave-agent:", err)
		os.Exit(1)
	}
}
