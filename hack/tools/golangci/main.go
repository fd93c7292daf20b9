// The linter of this repository: golangci-lint with two additional linters, kube-api-linter and purecore. One binary
// runs all checks, with one configuration, one report, and one way to make an exception: //nolint with an explanation.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"

	_ "sigs.k8s.io/kube-api-linter/pkg/plugin/base"
	_ "sigs.k8s.io/kube-api-linter/pkg/registration"

	_ "github.com/conclave-dev/conclave/hack/tools/golangci/purecore"
)

func main() {
	if err := commands.Execute(buildInfo()); err != nil {
		fmt.Fprintln(os.Stderr, "golangci-lint:", err)
		os.Exit(exitcodes.Failure)
	}
}

// buildInfo leaves the version unknown on purpose: golangci-lint then uses a hash of the binary as the key of its
// cache, so a change of an analyzer invalidates the cached results.
func buildInfo() commands.BuildInfo {
	info := commands.BuildInfo{Version: "unknown", Commit: "unknown", Date: "unknown"}
	if build, ok := debug.ReadBuildInfo(); ok {
		info.GoVersion = build.GoVersion
	}
	return info
}
