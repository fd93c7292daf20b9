package state_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func joinFor(t *testing.T, s *state.Store, lease, want time.Duration) {
	t.Helper()
	r, err := s.Join(state.Key{Group: "ledger", UID: "u1"}, lease)
	must.Succeed(t, err)
	expect.Equalf(t, r.Lease, want, "longest lease")
}

func TestLongestLeaseIsStoredUntilItExpires(t *testing.T) {
	dir, key := t.TempDir(), state.Key{Group: "ledger", UID: "u1"}
	s := open(t, dir)
	save(t, s, "ledger", record(5))
	joinFor(t, s, time.Millisecond, lease) // the lease that Save was called with
	joinFor(t, s, 10*time.Second, 10*time.Second)
	s.Close()

	s = open(t, dir)
	save(t, s, "ledger", record(6)) // retains the lease
	joinFor(t, s, time.Second, 10*time.Second)
	joinFor(t, s, time.Second, 10*time.Second) // as after a crash before it expired
	expect.DeepEqualf(t, *load(t, s, "ledger").List, version(6), "list")
	must.Succeed(t, s.LeaseExpired(key, time.Second))
	s.Close()

	s = open(t, dir)
	joinFor(t, s, 500*time.Millisecond, time.Second)
}

func TestLeaseNeedsStoredList(t *testing.T) {
	dir, key := t.TempDir(), state.Key{Group: "ledger", UID: "u1"}
	s := open(t, dir)
	_, err := s.Join(key, time.Second)
	expect.Equal(t, fmt.Sprint(err), "cannot store the state of group ledger: the group has no stored list")
	save(t, s, "ledger", record(5))
	joinFor(t, s, time.Minute, time.Minute)
	must.Succeed(t, s.Leave(key, 0))
	expect.ErrorContainsf(t, s.LeaseExpired(key, time.Second), "no stored list", "a lease of a group that was left")
	if r, err := s.Load("ledger"); r.List != nil || err != nil {
		t.Errorf("got %+v, %v, want no list", r, err)
	}
	save(t, s, "ledger", record(5))
	joinFor(t, s, lease, time.Minute) // The grants from before it left may still be in force.
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "ledger.state"), []byte("?"), 0o600))
	if r, err := s.Join(key, time.Second); err == nil {
		t.Errorf("got a lease of %v from an unreadable file, want an error", r.Lease)
	}
}

func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"first and long", "second"} {
		must.Succeed(t, state.ReplaceFile(path, []byte(text), 0o600))
		expect.Equal(t, string(must.ReadFile(t, path)), text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("got files %v, %v, want one", files, err)
	}
}

func TestReplaceFileFailsCleanly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "dir")
	must.Succeed(t, os.MkdirAll(filepath.Join(path, "in use"), 0o700))
	expect.ErrorContainsf(t, state.ReplaceFile(path, []byte("text"), 0o600), path, "replacing a directory by a file")
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 || files[0].Name() != "dir" {
		t.Errorf("got files %v, %v, want the directory alone", files, err)
	}
}
