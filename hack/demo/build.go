package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// images are what the demo runs in pods.
var images = []struct{ source, name string }{
	{"cmd/manager", managerImage}, {"cmd/agent", agentImage}, {"examples/lock-service", lockServiceImage},
}

// imageFolder is the folder with the archives of the images, relative to the top of the repository.
const imageFolder = "dist/demo"

// buildImages builds the images, the operator's manifests and the kubectl plugin.
func (s *demo) buildImages(ctx context.Context) error {
	for _, image := range images {
		build := interruptible(exec.CommandContext(ctx, "go", "-C", filepath.Join(s.top, "hack", "image"), "run", "-trimpath", ".", "-source", s.top,
			"-package", "./"+image.source, "-version", "demo", "-tag", image.name, "-output", filepath.Join(s.top, imageFolder)))
		build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
		if err := run(build); err != nil {
			return err
		}
		s.printf("%s", image.name)
	}
	return errors.Join(
		run(interruptible(exec.CommandContext(ctx, "make", "build", "PROGRAM=kubectl-conclave"))),
		run(interruptible(exec.CommandContext(ctx, "make", "build-installer", "IMG="+managerImage, "AGENT_IMG="+agentImage))),
	)
}

// build shows what the command reports: the first build takes several minutes.
func (c *hackCluster) build(ctx context.Context, out io.Writer) error {
	build := interruptible(exec.CommandContext(ctx, c.tool, "build"))
	build.Dir, build.Stderr = c.top, out
	if err := build.Run(); err != nil {
		return fmt.Errorf("cannot build the cluster's programs: %w", err)
	}
	return nil
}

// interruptible interrupts the command when its context ends, so that it can clean up.
func interruptible(command *exec.Cmd) *exec.Cmd {
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	return command
}
