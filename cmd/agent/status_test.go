package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// serveLocalAPI serves the local API of a new agent, and returns the path of its configuration.
func serveLocalAPI(t *testing.T, text string) (path string) {
	t.Helper()
	local, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	path = write(t, t.TempDir(), text+"api: "+local.Addr().String()+"\n")
	a := startAgent(t, path)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- api.Serve(ctx, local, api.New(a.Local(), http.NotFoundHandler())) }()
	t.Cleanup(func() {
		cancel()
		expect.Succeed(t, <-ended)
	})
	return path
}

var singleMember, _, _ = strings.Cut(validConfig, "  - {name: b")

func TestStatusSucceedsOnceThereIsACoordinator(t *testing.T) {
	t.Setenv(configVariable, serveLocalAPI(t, singleMember))
	ctx := testwait.Context(t)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	got := execute(t, "status")
	for got.status != 0 {
		if !strings.HasPrefix(got.err, "error: not ready: ") { // there may be one after the first of two requests
			t.Fatalf("got %+v", got)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("got %+v, want a coordinator", got)
		}
		got = execute(t, "status")
	}
	head, rest, _ := strings.Cut(got.out, "\n")
	if !strings.HasPrefix(head, "group ledger, seen by a: StatusTable, Majority, version 1, term ") {
		t.Errorf("got first line %q", head)
	}
	if want := `NAME  PRIORITY  STATUS       ADDRESS         CONNECTED
a     10        Coordinator  127.0.0.1:7401  self
`; rest != want {
		t.Errorf("got\n%swant\n%s", rest, want)
	}
}

func TestStatusFailsWithoutACoordinator(t *testing.T) {
	got := execute(t, "status", "--config", serveLocalAPI(t, validConfig))
	if got.status != 1 || !strings.HasSuffix(got.err, "group ledger has no coordinator\n") ||
		!strings.Contains(got.out, "\nb     20        ") {
		t.Errorf("got %+v", got)
	}
}

func TestStatusFailsWithoutAnAgent(t *testing.T) {
	local, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	local.Close()
	path := write(t, t.TempDir(), singleMember+"api: "+local.Addr().String()+"\n")
	got := execute(t, "status", "--config", path)
	if got.status != 1 || !strings.HasPrefix(got.err, "error: cannot reach the agent: ") ||
		!strings.Contains(got.err, "connection refused") {
		t.Errorf("got %+v", got)
	}
}

func TestStatusTableHasSessions(t *testing.T) {
	at := time.Date(2026, time.November, 20, 13, 37, 12, 0, time.FixedZone("", 3600))
	a := group.Process{Row: control.Row{Name: "a", Status: "Normal"}, Ineligible: "the probe of its application fails"}
	s := group.Status{
		IneligibleSince: at,
		Processes:       []group.Process{a},
		Sessions: []control.SessionStatus{
			{Leads: true, OpenedAt: at, RenewedAt: at.Add(time.Minute), RenewedMillisAgo: new(int64(240))},
			{OpenedAt: at.Add(time.Hour)},
		},
	}
	s.Self = "a"
	var out strings.Builder
	must.Succeed(t, printTable(&out, &s))
	for _, want := range []string{
		"self, not eligible since 2026-11-20 12:37:12 UTC: the probe of its application fails\n",
		"\nsession: leads, opened 2026-11-20 12:37:12 UTC, last renewed 0.2 s ago\n" +
			"session: waits, opened 2026-11-20 13:37:12 UTC, never renewed\n",
	} {
		expect.Containsf(t, out.String(), want, "output")
	}
}

// TestCertificateProblems: a user must learn of them before peers refuse the agent's connections.
func TestCertificateProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, of, err := identity.NewCA("test", 24*time.Hour)
		must.Succeed(t, err)
		dir := t.TempDir()
		paths := identity.Paths{Cert: filepath.Join(dir, "a.pem"), Key: filepath.Join(dir, "a-key.pem"), CA: filepath.Join(
			dir, "ca.pem")}
		put := func(path string, data []byte) {
			must.Succeed(t, os.WriteFile(path+".new", data, 0o600))
			must.Succeed(t, os.Rename(path+".new", path)) // The times of both may be the same.
		}
		replace := func(valid time.Duration) {
			pair, err := ca.Issue(identity.Names{{Domain: "default", Group: "ledger", Member: "a"}}, valid)
			must.Succeed(t, err)
			put(paths.Cert, pair.Cert)
			put(paths.Key, pair.Key)
		}
		put(paths.CA, of.Cert)
		replace(10 * time.Hour)
		files, err := identity.Open(paths, nil)
		must.Succeed(t, err)
		var log bytes.Buffer
		go reloadCertificates(t.Context(), files, slog.New(slog.NewTextHandler(&log, nil)))
		check := func(after time.Duration, want string, wantLines int) {
			t.Helper()
			time.Sleep(after + 2*certificateInterval)
			synctest.Wait()
			own, others := certificateProblems(files)
			got := strings.Join(own, "\n") + "|" + strings.Join(others, "\n")
			if lines := strings.Count(log.String(), "\n"); !strings.HasPrefix(got, want) ||
				want == "|" && got != want || lines != wantLines {
				t.Errorf("got problems %q and log %q, want %q and %d lines", got, &log, want, wantLines)
			}
		}
		const refused = "cannot load changed certificate files; the previous ones remain in use: "
		check(0, "|", 0)
		must.Succeed(t, os.Rename(paths.CA, paths.CA+".away"))
		check(0, refused, 0)
		must.Succeed(t, os.Rename(paths.CA+".away", paths.CA))
		check(0, "|", 0)
		replace(-time.Second)
		check(0, refused, 0)
		replace(10 * time.Hour)
		check(6*time.Hour, "|", 0)
		check(2*time.Hour, "|certificate expires at ", 1)
		check(time.Hour, "|certificate expires at ", 1)
		check(time.Hour, "certificate expired at ", 2)
		replace(10 * time.Hour)
		check(0, "|", 2)
	})
}
