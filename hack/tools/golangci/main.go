// The linter of this repository: golangci-lint with two analyzers of our own compiled in. One binary checks everything,
// with one configuration, one report and one way (//nolint with an explanation) to make an exception.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"

	_ "github.com/conclave-dev/conclave/hack/tools/golangci/apirules"
	_ "github.com/conclave-dev/conclave/hack/tools/golangci/purecore"
)

func main() {
	if err := commands.Execute(buildInfo()); err != nil {
		fmt.Fprintln(os.Stderr, "golangci-lint:", err)
		os.Exit(exitcodes.Failure)
	}
}

// buildInfo leaves the version unknown on purpose: the cache of results is then keyed by the binary itself, so that a
// changed analyzer of ours is never answered with results from before the change.
func buildInfo() commands.BuildInfo {
	info := commands.BuildInfo{Version: "unknown", Commit: "unknown", Date: "unknown"}
	if build, ok := debug.ReadBuildInfo(); ok {
		info.GoVersion = build.GoVersion
	}
	return info
}
