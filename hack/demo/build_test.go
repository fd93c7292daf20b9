package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/program"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// slowCluster is a cluster whose build ends when the demo has printed something.
type slowCluster struct {
	cluster

	printed *testwait.Log
	until   *regexp.Regexp
	err     error
}

func (c *slowCluster) build(ctx context.Context, out *printer, compiled func()) error {
	out.show("building: 10 % done")
	compiled()
	return errors.Join(c.err, agentcluster.Await(ctx, func(context.Context) error {
		if !c.until.MatchString(c.printed.String()) {
			return errors.New("the demo must print " + c.until.String() + ", got " + c.printed.String())
		}
		return nil
	}))
}

// Agents elect while the programs are built: each kind of fault has a line with the next coordinator and the time.
func TestAgentsElectDuringBuild(t *testing.T) {
	top := t.TempDir()
	if err := os.Mkdir(filepath.Join(top, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := program.DependOnProgram(t.Context(), "../..", "./cmd/agent"); err != nil {
		t.Fatal(err)
	}
	if _, err := agentcluster.Build(t.Context(), filepath.Join(top, "bin"), false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	printed := &testwait.Log{}
	s := &demo{out: newPrinter(printed), top: top}
	s.cluster = &slowCluster{printed: printed, until: regexp.MustCompile(
		`(?s) [a-e] kill -9 +[a-e] +[\d.]+ ms\n.* [a-e] paused.* [a-e] +[\d.]+ ms\n.* [a-e] steps down +[a-e] +[\d.]+ ms\n`)}
	if err := s.build(ctx, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(printed.String(), "the agents stopped") {
		t.Error(printed.String())
	}
}

// An error of the build ends the demo, also if the agents can't be shown.
func TestBuildFailsWithoutAgents(t *testing.T) {
	printed := &testwait.Log{}
	s := &demo{out: newPrinter(printed), top: t.TempDir()}
	s.cluster = &slowCluster{printed: printed, until: regexp.MustCompile("building"), err: errors.New("cannot build")}
	interrupted := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	if err := s.build(t.Context(), interrupted); err == nil || err.Error() != "cannot build" {
		t.Errorf("got %v, want the error of the build", err)
	}
}

// The images are built while the cluster's programs are.
func TestImagesAreBuiltMeanwhile(t *testing.T) {
	printed := &testwait.Log{}
	s := &demo{out: newPrinter(printed), top: t.TempDir()}
	s.cluster = &slowCluster{printed: printed, until: regexp.MustCompile("the images are built")} // Until then, its build runs.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := s.build(ctx, func(context.Context) error {
		s.printf("the images are built")
		return errors.New("cannot build an image")
	})
	if err == nil || err.Error() != "cannot build an image" {
		t.Errorf("got %v, want the error of the image", err)
	}
}
