package state_test

import (
	"io/fs"
	"os"
	"path/filepath"
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
	for _, uid := range []string{"u2", "u1"} { // a group that isn't stored, and one that the agent has left
		expect.ErrorContainsf(t, s.Reserve(state.Key{Group: "ledger", UID: uid}, firstBlock(10), 10, nil), "no stored list",
			"reservation of group %s", uid)
		must.Succeed(t, s.Leave(ledger, 10))
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
	another := map[string]election.Identity{"b": 7}
	must.Succeed(t, s.Reserve(file, firstBlock(5)+1, 5, another)) // The first one counts.
	save(t, s, "ledger", inFile(5))                               // Addresses have changed, for example.
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
	s = open(t, dir)
	expect.Equalf(t, s.Identity(), first, "identity after a restart")
	expect.AtLeastf(t, s.LockedAt(), 1, "time at which the directory was locked")
	if other := open(t, t.TempDir()).Identity(); first == 0 || other == first || other == 0 {
		t.Errorf("got identities %x and %x, want two that differ", first, other)
	}
	must.Succeed(t, s.GiveUpIdentity())
	expect.ErrorIsf(t, s.GiveUpIdentity(), fs.ErrNotExist, "giving up an identity that is gone")
}

func TestDamagedIdentityIsAnError(t *testing.T) {
	for _, text := range []string{"", "\n", "0000000000000000\n", "g000000000000000\n", "a0b1c2d3e4f567\n"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "identity")
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := state.Open(dir)
		expect.ErrorContainsf(t, err, path+" is damaged: ", "%q", text)
	}
}

// TestNothingIsWrittenAfterClose: the next agent has locked the directory.
func TestNothingIsWrittenAfterClose(t *testing.T) {
	s := open(t, t.TempDir())
	save(t, s, "ledger", record(5))
	must.Succeed(t, s.Close())
	expect.ErrorIsf(t, s.Reserve(ledger, firstBlock(5)+1, 5, nil), os.ErrClosed, "reservation after Close")
}
