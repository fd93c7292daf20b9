package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// startAgent starts the agent of a file, without a process that serves it.
func startAgent(t *testing.T, path string) *agent.Agent {
	t.Helper()
	c, err := load(path)
	must.Succeed(t, err)
	store, err := state.Open(c.State)
	must.Succeed(t, err)
	t.Cleanup(func() { store.Close() })
	listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
	must.Succeed(t, err)
	a, err := agent.New(t.Context(), c, agent.Options{
		Clock: clock.New(), Life: 1, Listener: listener, Store: store, Log: slog.New(slog.DiscardHandler),
		Metrics: metrics.New(),
	})
	must.Succeed(t, err)
	t.Cleanup(func() { a.Close(context.Background()) })
	return a
}

func TestProcessEndsIfLocalAPIFails(t *testing.T) {
	path := write(t, t.TempDir(), validConfig)
	a := startAgent(t, path)
	local, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	local.Close()
	ended := make(chan error, 1)
	go func() {
		ended <- newProcess(a, local, openConfigFile(path), http.NotFoundHandler(),
			slog.New(slog.DiscardHandler)).Run(context.Background())
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("got no error")
		}
	case <-time.After(testwait.Limit):
		t.Error("timed out waiting for the process to end")
	}
}

func TestFileChangedDuringStartIsReloaded(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, validConfig)
	file := openConfigFile(path)
	a := startAgent(t, path)
	write(t, dir, strings.Replace(validConfig, "  members:", "  version: 2\n  members:", 1))
	watchFile(t, file, a)
	testwait.Until(t, "version 2 is adopted", func() bool { return a.Config().Groups[0].List.Version == 2 })
}

// TestInvalidChangeIsRefused: the agent names the field, and continues with its previous settings.
func TestInvalidChangeIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, validConfig)
	a := startAgent(t, path)
	watchFile(t, openConfigFile(path), a)
	next := strings.Replace(validConfig, "  members:", "  version: 2\n  members:", 1)
	write(t, dir, strings.Replace(next, "priority: ", "priority: -", 1))
	testwait.Until(t, "the invalid file is refused", func() bool {
		own, _ := a.Problems()
		problems := strings.Join(own, "\n")
		return strings.Contains(problems, "refused changed configuration: ") && strings.Contains(problems, path+":") &&
			strings.Contains(problems, "groups.members.priority: must be")
	})
	expect.Equalf(t, a.Config().Groups[0].List.Version, 1, "version of the list")
	write(t, dir, next)
	testwait.Until(t, "the next valid file is reloaded", func() bool {
		own, _ := a.Problems()
		return a.Config().Groups[0].List.Version == 2 && !strings.Contains(strings.Join(own, ""), "refused")
	})
}

// TestUnreadableFileIsNoChange: the agent says that it can't read the file, until it can.
func TestUnreadableFileIsNoChange(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, validConfig)
	a := startAgent(t, path)
	watchFile(t, openConfigFile(path), a)
	unreadable := func() bool {
		own, _ := a.Problems()
		return strings.Contains(strings.Join(own, "\n"), "cannot read the configuration: ")
	}
	must.Succeed(t, os.Rename(path, path+".away"))
	testwait.Until(t, "the agent can't read the file", unreadable)
	must.Succeed(t, os.Rename(path+".away", path))
	testwait.Until(t, "the agent has read the file", func() bool { return !unreadable() })
}

// watchFile reloads a file until the test ends.
func watchFile(t *testing.T, f configFile, a *agent.Agent) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		f.watch(ctx, a, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() { cancel(); <-watched })
}
