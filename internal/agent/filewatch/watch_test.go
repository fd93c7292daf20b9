package filewatch

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// start watches a directory. The function waits until a reported change shows this content of a file.
func start(t *testing.T, dir, file string) (await func(content, what string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes, ended := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		Watch(ctx, dir, file, slog.New(slog.NewTextHandler(t.Output(), nil)), func(changed bool) bool {
			if content, err := os.ReadFile(filepath.Join(dir, file)); changed && err == nil {
				changes <- string(content)
			} else if changed {
				changes <- "missing"
			}
			return true
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return func(content, what string) {
		t.Helper()
		for limit := time.After(testwait.Limit); ; {
			select {
			case got := <-changes:
				if got == content {
					return
				}
			case <-limit:
				t.Fatalf("timed out waiting for %s", what)
			}
		}
	}
}

// TestChangesAreReported: the update of a mounted ConfigMap replaces a symbolic link, and editors rename.
func TestChangesAreReported(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "watched")
	write := func(name, content string) func() error {
		return func() error {
			path := filepath.Join(dir, name)
			return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600))
		}
	}
	link := func(to, name string) func() error {
		return func() error { return os.Symlink(to, filepath.Join(dir, name)) }
	}
	rename := func(from, to string) func() error {
		return func() error { return os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)) }
	}
	await := start(t, dir, "agent.yaml")
	for _, step := range []struct {
		what    string
		change  func() error
		content string
	}{
		{"a directory that doesn't exist yet", write("agent.yaml", "1"), "1"},
		{"a write in place", write("agent.yaml", "2"), "2"},
		{"a file of an editor", write("agent.yaml~", "3"), "2"},
		{"a rename", rename("agent.yaml~", "agent.yaml"), "3"},
		{"a removed file", func() error { return os.Remove(filepath.Join(dir, "agent.yaml")) }, "missing"},
		{"a volume of kubelet", write("..1/agent.yaml", "4"), "missing"},
		{"its link", link("..1", "..data"), "missing"},
		{"the link of the file", link("..data/agent.yaml", "agent.yaml"), "4"},
		{"the next version", write("..2/agent.yaml", "5"), "4"},
		{"its link, under another name", link("..2", "..data_tmp"), "4"},
		{"the replaced link", rename("..data_tmp", "..data"), "5"},
		{"a removed directory", func() error { return os.RemoveAll(dir) }, "missing"},
		{"a directory that exists again", write("agent.yaml", "6"), "6"},
		{"another directory of the name", rename(".", "../away"), "missing"},
		{"the file in it", write("agent.yaml", "7"), "7"},
		{"a change in it", write("agent.yaml", "8"), "8"},
	} {
		must.Succeed(t, step.change())
		await(step.content, step.what)
	}
}

// TestContentOfOtherFilesIsIgnored: a log in the same directory isn't a reason for a check, but a new file may be.
func TestContentOfOtherFilesIsIgnored(t *testing.T) {
	for _, c := range []struct {
		op   fsnotify.Op
		file string
		want bool
	}{
		{fsnotify.Write, "log", false},
		{fsnotify.Chmod, "log", false},
		{fsnotify.Write, "agent.yaml", true},
		{fsnotify.Create, "log", true},
		{fsnotify.Rename, "log", true},
		{fsnotify.Remove, "log", true},
	} {
		expect.Equalf(t, matters(fsnotify.Event{Name: filepath.Join("dir", c.file), Op: c.op}, "agent.yaml"), c.want,
			"%s of %s", c.op, c.file)
	}
}

// TestContinuousWritesDelayNothing: a log in the same directory is written all the time.
func TestContinuousWritesDelayNothing(t *testing.T) {
	dir := t.TempDir()
	await := start(t, dir, "agent.yaml")
	log, err := os.Create(filepath.Join(dir, "log"))
	must.Succeed(t, err)
	defer log.Close()
	await("missing", "the new log")
	for range 2000 {
		_, err := log.WriteString(strings.Repeat("x", 10))
		must.Succeed(t, err)
	}
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "agent.yaml"), []byte("1"), 0o600))
	await("1", "the file, after the log")
}
