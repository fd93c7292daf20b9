package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// A violation isn't taken for a ledger that can't be checked, for which the demo waits.
func TestVerdictOfLedger(t *testing.T) {
	for script, want := range map[string]struct {
		tenures int
		failed  string
	}{
		"echo 'holds: no gap in 42 writes to 3 resources, by 3 processes with 2 tokens'": {2, ""},
		"echo 'lock-service: violated: line 7: duplicate' >&2; exit 1":                   {0, "THE INVARIANT IS VIOLATED: line 7: duplicate"},
		"echo 'pods \"ledger\" not found' >&2; exit 1":                                   {0, "cannot check the ledger: exit status 1: pods"},
	} {
		got, err := (&demo{cluster: &scriptedCluster{script: script}}).readLocks(t.Context())
		if got.tenures != want.tenures || (err != nil) != (want.failed != "") || !strings.Contains(fmt.Sprint(err), want.failed) {
			t.Errorf("%s: got %+v, error %v; want %+v", script, got, err, want)
		}
		if violated := errors.Is(err, errViolated); violated != strings.Contains(script, "violated") {
			t.Errorf("%s: got error %v, is it a violation: %t", script, err, violated)
		}
	}
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
