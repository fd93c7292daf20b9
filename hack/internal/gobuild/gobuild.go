// Package gobuild compiles the programs that images and releases contain.
package gobuild

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// The flags omit the symbols, the debug information and the build ID. The Dockerfile has the same flags.
const (
	CompilerFlags = "all=-dwarf=false"
	LinkerFlags   = "-s -w -buildid="
)

// Program is a main package of a Go module.
type Program struct {
	Source  string // directory of the module
	Package string // main package, as for `go build`
	Version string
	Tags    string // build tags, for tests
}

// Platform is an operating system and an architecture, as Go names them.
type Platform struct{ OS, Architecture string }

// ParsePlatform splits os/architecture.
func ParsePlatform(text string) (Platform, error) {
	system, architecture, ok := strings.Cut(text, "/")
	if !ok || system == "" || architecture == "" || strings.Contains(architecture, "/") {
		return Platform{}, fmt.Errorf("must be os/architecture, such as linux/arm64, got %q", text)
	}
	return Platform{system, architecture}, nil
}

// Compile builds the static binary. It sets all environment variables that affect the result.
func (p Program) Compile(ctx context.Context, platform Platform, binary string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-toolexec",
		"env GOGC=400", "-tags", p.Tags,
		"-gcflags", CompilerFlags, "-ldflags", LinkerFlags+" -X main.version="+p.Version, "-o", binary, p.Package)
	command.Dir = p.Source
	command.Env = append(os.Environ(),
		"CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", p.Package, err, output)
	}
	return nil
}
