package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// The flags omit the symbols, the debug information and the build ID. The Dockerfile has the same flags.
const (
	compilerFlags = "all=-dwarf=false"
	linkerFlags   = "-s -w -buildid="
)

// compile builds the static binary. It sets all environment variables that affect the result.
func (r recipe) compile(ctx context.Context, binary string) error {
	system, architecture, err := r.platform()
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", r.Tags,
		"-gcflags", compilerFlags, "-ldflags", linkerFlags+" -X main.version="+r.Version, "-o", binary, r.Package)
	command.Dir = r.Source
	command.Env = append(os.Environ(),
		"CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", r.Package, err, output)
	}
	return nil
}
