package state_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/state"
)

func promise(t *testing.T, s *state.Store, lease, want time.Duration) {
	t.Helper()
	if longest, err := s.RecordLease(state.Key{Group: "ledger"}, lease); err != nil || longest != want {
		t.Errorf("it may have granted for %v, %v; want %v", longest, err, want)
	}
}

func TestTheLongestLeaseIsKeptUntilItIsOver(t *testing.T) {
	dir, key := t.TempDir(), state.Key{Group: "ledger"}
	s := opened(t, dir)
	saved(t, s, "ledger", version(5))
	promise(t, s, time.Millisecond, lease) // for which it was saved
	promise(t, s, 10*time.Second, 10*time.Second)
	s.Close()

	s = opened(t, dir)
	saved(t, s, "ledger", version(6)) // keeps it
	promise(t, s, time.Second, 10*time.Second)
	promise(t, s, time.Second, 10*time.Second) // killed before it was over
	if got := loaded(t, s, "ledger"); !reflect.DeepEqual(got, version(6)) {
		t.Errorf("%+v is kept", got)
	}
	if err := s.LeaseExpired(key, time.Second); err != nil {
		t.Fatal(err)
	}
	s.Close()

	s = opened(t, dir)
	promise(t, s, 500*time.Millisecond, time.Second)
}

func TestALeaseIsKeptBesideAListOnly(t *testing.T) {
	dir, key := t.TempDir(), state.Key{Group: "ledger"}
	s := opened(t, dir)
	if _, err := s.RecordLease(key, time.Second); err == nil || err.Error() != "no list of group ledger is kept" {
		t.Error(err)
	}
	saved(t, s, "ledger", version(5))
	promise(t, s, time.Minute, time.Minute)
	if err := s.Remove(key); err != nil {
		t.Fatal(err)
	}
	if err := s.LeaseExpired(key, time.Second); err != nil {
		t.Error("the group was forgotten:", err)
	}
	if _, found, err := s.Load(key); found || err != nil {
		t.Errorf("it came back: %v, %v", found, err)
	}
	saved(t, s, "ledger", version(5))
	promise(t, s, lease, lease)
	if err := os.WriteFile(filepath.Join(dir, "ledger.list"), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	if longest, err := s.RecordLease(key, time.Second); err == nil {
		t.Errorf("what can't be read has a lease of %v", longest)
	}
}
