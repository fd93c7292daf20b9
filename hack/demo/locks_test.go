package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// The ledger's verdict is read also if it is a violation, which has status 500. An error of the API server isn't a verdict.
func TestLedgerIsReadThroughProxy(t *testing.T) {
	const path = "/api/v1/namespaces/demo/services/lock-service-ledger:http/proxy/invariant"
	for name, tc := range map[string]struct {
		status   int
		response string
		want     locks
		failed   string
	}{
		"the invariant holds":          {200, `{"ok":true,"lines":83,"claims":42,"tokens":2,"processes":3}`, locks{Granted: 42, Tenures: 2}, ""},
		"the invariant is violated":    {500, `{"ok":false,"violation":"gap","claims":4,"tokens":1}`, locks{Granted: 4, Tenures: 1, Violation: "gap"}, ""},
		"the ledger is gone":           {503, `{"kind":"Status","message":"no endpoints available"}`, locks{}, "503 Service Unavailable"},
		"the response isn't a verdict": {200, `Not a verdict`, locks{}, "200 OK"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "proxy")
			serveOn(t, socket, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != path {
					t.Errorf("got path %s, want %s", r.URL.Path, path)
				}
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.response)
			})
			got, err := newProxiedLedger(socket).read(t.Context())
			if failed := fmt.Sprint(err); got != tc.want || (err != nil) != (tc.failed != "") || !strings.Contains(failed, tc.failed) {
				t.Errorf("got %+v, error %v; want %+v, error %q", got, err, tc.want, tc.failed)
			}
		})
	}
}

// The demo must leave neither kubectl proxy nor its folder behind.
func TestProxyEndsWithTheDemo(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	var background sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := openLedger(ctx, &scriptedCluster{script: "exec sleep 1000"}, &background); err != nil {
		t.Fatal(err)
	}
	cancel()
	background.Wait()
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v left behind, want nothing", left, err)
	}
}

func serveOn(t *testing.T, socket string, handler http.HandlerFunc) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // It ends with Close.
	t.Cleanup(func() { _ = server.Close() })
}

// scriptedCluster is a cluster whose kubectl is a shell script.
type scriptedCluster struct {
	cluster

	script string
}

func (c *scriptedCluster) kubectl(ctx context.Context, arguments ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "sh", append([]string{"-c", c.script, "kubectl"}, arguments...)...)
}

// The API server ends a watch after a while. The demo then watches again, and fails only if that isn't possible.
func TestWatchIsRepeated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "first")
	s := &demo{out: t.Output()}
	s.cluster = &scriptedCluster{script: `
		if [ ! -e ` + file + ` ]; then touch ` + file + `; echo '{"status":{"coordinator":{"pod":"p-1"}}}'; exit 0; fi
		if [ ! -e ` + file + `2 ]; then touch ` + file + `2; echo '{"status":{"coordinator":{"pod":"p-2"}}}'; exit 0; fi
		echo 'connection refused' >&2; exit 1`}
	s.watch(t.Context())
	_, _, err := s.awaitStatus(t.Context(), "a coordinator that never leads", time.Minute, func(*v1.ElectionGroup) bool { return false })
	if now := s.current(); coordinatorOf(now).Pod != "p-2" {
		t.Errorf("got %+v, want the status of the second watch", now)
	}
	if err == nil || !strings.Contains(err.Error(), "cannot watch the group: exit status 1: connection refused") {
		t.Errorf("got error %v", err)
	}
}
