package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
)

// start starts an agent of a file, without what serves it.
func startAgent(t *testing.T, path string) *agent.Agent {
	t.Helper()
	c, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(c.State)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(t.Context(), c, agent.Options{
		Clock: clock.New(time.Now()), Life: 1, Listener: listener, Store: store, Log: slog.New(slog.DiscardHandler),
		Metrics: func(of string) group.Metrics { return metrics.New().ForGroup(of) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(context.Background()) })
	return a
}

func TestAnAgentWhoseLocalAPIFailsEnds(t *testing.T) {
	path := write(t, t.TempDir(), validConfig)
	a := startAgent(t, path)
	local, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	local.Close()
	ended := make(chan error, 1)
	go func() {
		ended <- serve(context.Background(), a, local, openConfigFile(path), http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended as if all were well")
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on, and nobody can ask it anything")
	}
}

func TestAFileThatChangesWhileTheAgentStartsIsTakenOver(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, validConfig)
	file := openConfigFile(path)
	a := startAgent(t, path)
	write(t, dir, strings.Replace(validConfig, "  members:", "  version: 2\n  members:", 1))
	watchFile(t, file, a)
	eventually(t, "version 2 is adopted", func() bool { return a.Config().Groups[0].List.Version == 2 })
}

// TestABadFileIsRefusedUnderWay: with its line and the reason, and the agent goes on
// with what it had.
func TestABadFileIsRefusedUnderWay(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, validConfig)
	a := startAgent(t, path)
	watchFile(t, openConfigFile(path), a)
	next := strings.Replace(validConfig, "  members:", "  version: 2\n  members:", 1)
	write(t, dir, strings.Replace(next, "priority: ", "priority: -", 1))
	eventually(t, "the bad file is refused", func() bool {
		problems := strings.Join(a.Problems(), "\n")
		return strings.Contains(problems, "the changed file was refused: ") && strings.Contains(problems, path+":") &&
			strings.Contains(problems, "priority must be")
	})
	if version := a.Config().Groups[0].List.Version; version != 1 {
		t.Errorf("it goes by version %d of the list", version)
	}
	write(t, dir, next)
	eventually(t, "the next good one is taken over", func() bool {
		return a.Config().Groups[0].List.Version == 2 && !strings.Contains(strings.Join(a.Problems(), ""), "refused")
	})
}

// watching takes a file over until the test ends.
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

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begun := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatal("waited in vain:", what)
		}
	}
}
