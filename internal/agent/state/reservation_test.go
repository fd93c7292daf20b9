package state_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var ledger = state.Key{Group: "ledger", UID: "u1"}

// TestReservationRises: with each list, and in between. It never falls, so the next process knows a bound on all that
// this one has granted.
func TestReservationRises(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	want := func(term election.Term) {
		t.Helper()
		s.Close()
		s = open(t, dir)
		expect.Equalf(t, load(t, s, "ledger").Reserved, term, "reservation")
	}
	save(t, s, "ledger", record(5))
	want(firstBlock(5))
	must.Succeed(t, s.Reserve(ledger, firstBlock(5)+7, 5, nil))
	want(firstBlock(5) + 7)
	must.Succeed(t, s.Reserve(ledger, firstBlock(5), 5, nil))
	save(t, s, "ledger", record(5))
	want(firstBlock(5) + 7)
	save(t, s, "ledger", record(9))
	want(firstBlock(9))
	must.Succeed(t, s.Reserve(ledger, firstBlock(5)+9, 5, nil)) // It was in progress meanwhile.
	want(firstBlock(9))
	if err := s.Reserve(state.Key{Group: "ledger", UID: "u2"}, firstBlock(10), 10, nil); err == nil {
		t.Error("reserved terms of a group that isn't stored")
	}
	must.Succeed(t, s.Leave(ledger, 10))
	if err := s.Reserve(ledger, firstBlock(10), 10, nil); err == nil {
		t.Error("reserved terms of a group that the agent has left")
	}
	save(t, s, "ledger", record(9))
	want(firstBlock(9))
}

// TestPeersOfAList: they are those of the list in force, and forgotten with the next one.
func TestPeersOfAList(t *testing.T) {
	s, file := open(t, t.TempDir()), state.Key{Group: "ledger"}
	save(t, s, "ledger", inFile(5))
	met := map[string]election.Identity{"b": 1<<64 - 1}
	must.Succeed(t, s.Reserve(file, 0, 5, met))
	expect.DeepEqualf(t, load(t, s, "ledger").Peers, met, "peers")
	must.Succeed(t, s.Reserve(file, firstBlock(5)+1, 5, nil))
	save(t, s, "ledger", inFile(5)) // Addresses have changed, for example.
	expect.DeepEqualf(t, load(t, s, "ledger").Peers, met, "peers")
	save(t, s, "ledger", inFile(6))
	must.Succeed(t, s.Reserve(file, 0, 5, met))
	expect.Lenf(t, load(t, s, "ledger").Peers, 0, "peers of the next list")
}

// TestJoinedIsStored: the first process of a group remembers nothing because there is nothing.
func TestJoinedIsStored(t *testing.T) {
	s := open(t, t.TempDir())
	join := func(joined bool, lease, longest time.Duration) {
		t.Helper()
		r, err := s.Join(ledger, lease)
		if err != nil || r.Joined != joined || r.Lease != longest {
			t.Errorf("got joined %t, lease %v and error %v, want %t and %v", r.Joined, r.Lease, err, joined, longest)
		}
	}
	if _, err := s.Join(ledger, lease); err == nil {
		t.Error("joined a group without a list")
	}
	save(t, s, "ledger", record(5))
	join(false, lease, lease)
	join(true, 2*lease, 2*lease)
	save(t, s, "ledger", record(6))
	join(true, lease, 2*lease)
	must.Succeed(t, s.Leave(ledger, 7))
	next := record(8)
	save(t, s, "ledger", next)
	join(true, lease, 2*lease)
	next.UID = "u2"
	save(t, s, "ledger", next)
	r, err := s.Join(state.Key{Group: "ledger", UID: "u2"}, lease)
	if err != nil || r.Joined {
		t.Errorf("got %+v, %v, want that no process has joined the other group", r, err)
	}
}

// TestIdentity: a directory keeps it, and two directories have different ones.
func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	first := s.Identity()
	s.Close()
	expect.Equalf(t, open(t, dir).Identity(), first, "identity after a restart")
	if other := open(t, t.TempDir()).Identity(); first == 0 || other == first || other == 0 {
		t.Errorf("got identities %x and %x, want two that differ", first, other)
	}
}

func TestDamagedIdentityIsAnError(t *testing.T) {
	for _, text := range []string{"", "\n", "0000000000000000\n", "g000000000000000\n", "a0b1c2d3e4f567\n"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "identity")
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := state.Open(dir)
		if err == nil || !strings.HasPrefix(err.Error(), path+" is damaged: ") {
			t.Errorf("%q: got error %v, want one that names %s", text, err, path)
		}
	}
}

// TestNothingIsWrittenAfterClose: the next agent has locked the directory.
func TestNothingIsWrittenAfterClose(t *testing.T) {
	s := open(t, t.TempDir())
	save(t, s, "ledger", record(5))
	must.Succeed(t, s.Close())
	expect.ErrorIsf(t, s.Reserve(ledger, firstBlock(5)+1, 5, nil), os.ErrClosed, "reservation after Close")
}
