package main

import (
	"context"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// serveLocalAPI serves the local API of a new agent, and returns the path of its
// configuration.
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

const singleMember = `self: a
listen: 127.0.0.1:7401
tls: {insecure: true}
groups:
- name: ledger
  members:
  - {name: a, priority: 10, address: "127.0.0.1:7401"}
`

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
	if got.status != 1 || !strings.HasSuffix(got.err, "group ledger has no coordinator\n") || !strings.Contains(got.out, "\nb     20        ") {
		t.Errorf("got %+v", got)
	}
}

func TestStatusFailsWithoutAnAgent(t *testing.T) {
	local, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	local.Close()
	path := write(t, t.TempDir(), singleMember+"api: "+local.Addr().String()+"\n")
	got := execute(t, "status", "--config", path)
	if got.status != 1 || !strings.HasPrefix(got.err, "error: cannot reach the agent: ") || !strings.Contains(got.err, "connection refused") {
		t.Errorf("got %+v", got)
	}
}

func TestStatusTableHasSessions(t *testing.T) {
	at := time.Date(2026, time.November, 20, 13, 37, 12, 0, time.FixedZone("", 3600))
	s := group.Status{
		IneligibleSince: at, Processes: []group.Process{{Name: "a", Status: "Normal", Ineligible: "the probe of its application fails"}},
		Sessions: []control.SessionStatus{
			{Leads: true, OpenedAt: at, RenewedAt: at.Add(time.Minute), RenewedMillisAgo: new(int64(240))}, {OpenedAt: at.Add(time.Hour)},
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
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%swant %q", &out, want)
		}
	}
}

// The documents are those of the local API, and the exit status is that of the table.
func TestStatusPrintsDocuments(t *testing.T) {
	t.Setenv(configVariable, serveLocalAPI(t, singleMember))
	for output, want := range map[string]*regexp.Regexp{
		"json": regexp.MustCompile(`^\{"group":"ledger",.*"term":\d+.*\}\n$`),
		"YAML": regexp.MustCompile(`(?s)^---\n.*\ngroup: ledger\n.*\nterm: \d+\n`),
	} {
		got := execute(t, "status", "-o", output)
		if !want.MatchString(got.out) {
			t.Errorf("-o %s: got %+v, want %s", output, got, want)
		}
	}
	if got := execute(t, "status", "-o", "jsn"); got.status != 2 || got.err != "error: unknown output \"jsn\" (did you mean json?): choose one of json, yaml\n" {
		t.Errorf("got %+v, want a usage error", got)
	}
}
