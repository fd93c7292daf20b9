package identity_test

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestNobodyWaitsForBlockedReload: a check of the files that doesn't return, here because of
// its callback, delays neither queries nor handshakes.
func TestNobodyWaitsForBlockedReload(t *testing.T) {
	ca := newCA(t)
	pair := ca.issue(t, time.Hour, ledgerA)
	paths := writeFiles(t, pair, ca.pair.Cert)
	blocked, unblock := make(chan struct{}), make(chan struct{})
	files, err := identity.Open(paths, func(error) {
		close(blocked)
		<-unblock
	})
	must.Succeed(t, err)
	defer close(unblock)
	until := files.NotAfter()
	put(t, paths.Cert, nil)
	go files.Reload()
	testwait.Receive(t, "a blocked reload", blocked)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !files.NotAfter().Equal(until) || files.Names()[0] != ledgerA {
			t.Error("got another certificate")
		}
		if m := connect(t, files.Client(ledgerA), files.Server()); m.clientErr != nil || m.serverErr != nil {
			t.Error(m.clientErr, m.serverErr)
		}
	}()
	testwait.Receive(t, "queries and a handshake", done)
}

// TestQueriesDoNoIO: they return the new content only after a reload. The files have other
// sizes, because their times may be the same.
func TestQueriesDoNoIO(t *testing.T) {
	ca := newCA(t)
	a := newAgent(t, ca.issue(t, time.Minute, ledgerA), ca.pair.Cert)
	before, next := a.NotAfter(), ca.issue(t, time.Hour, ledgerA, identity.Name{Domain: "default", Group: "audit", Member: "a"})
	put(t, a.paths.Cert, next.Cert)
	put(t, a.paths.Key, next.Key)
	if !a.NotAfter().Equal(before) || len(a.Names()) != 1 {
		t.Error("got the new certificate before the reload")
	}
	a.Reload()
	if a.NotAfter().Equal(before) || len(a.Names()) != 2 {
		t.Errorf("got the previous certificate after the reload; errors: %q", *a.errors)
	}
}

// TestReloadSeesWhatWasWrittenBefore, even if a handshake that has begun earlier is still
// checking the files. Whoever has stored a certificate relies on that.
func TestReloadSeesWhatWasWrittenBefore(t *testing.T) {
	ca := newCA(t)
	paths := writeFiles(t, ca.issue(t, time.Minute, ledgerA), ca.pair.Cert)
	checking, goOn := make(chan struct{}), make(chan struct{})
	files, err := identity.Open(paths, func(error) {
		close(checking)
		<-goOn
	})
	must.Succeed(t, err)
	put(t, paths.Cert, nil)
	handshake := make(chan struct{})
	go func() {
		defer close(handshake)
		connect(t, files.Client(ledgerA), files.Server())
	}()
	testwait.Receive(t, "a handshake that checks the files", checking)

	next := ca.issue(t, time.Hour, ledgerA, identity.Name{Domain: "default", Group: "audit", Member: "a"})
	put(t, paths.Key, next.Key)
	put(t, paths.Cert, next.Cert)
	names := make(chan identity.Names, 1)
	go func() {
		files.Reload()
		names <- files.Names()
	}()
	time.AfterFunc(20*time.Millisecond, func() { close(goOn) }) // A Reload that doesn't wait has returned by then.
	expect.Lenf(t, testwait.Receive(t, "the names after the reload", names), 2,
		"after the reload (the names in the new certificate)")
	testwait.Receive(t, "the end of the handshake", handshake)
}
