package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ledgerPod stores each use of a lock, and checks that no lock was held twice. See examples/README.md.
const ledgerPod = group + "-ledger-0"

// locks is what the ledger knows about the locks that the coordinators have granted.
type locks struct {
	Granted int // Locks that a process has used.
	Tenures int // Coordinators that have granted them. A pod that leads again counts again.
	// Violation says how a lock was held twice.
	Violation string
}

func (l locks) String() string {
	if l.Violation != "" {
		return "THE INVARIANT IS VIOLATED: " + l.Violation
	}
	return fmt.Sprintf("%d granted, none held twice", l.Granted)
}

// ledger reads what the ledger has checked.
type ledger interface {
	read(ctx context.Context) (locks, error)
}

// proxiedLedger is a ledger behind the API server's proxy. kubectl proxy serves it on a socket that only this user can open.
type proxiedLedger struct{ client http.Client }

const ledgerPath = "/api/v1/namespaces/" + namespace + "/services/" + group + "-ledger:http/proxy/"

// openLedger runs kubectl proxy in the background until ctx ends.
func openLedger(ctx context.Context, c cluster, background *sync.WaitGroup) (*proxiedLedger, error) {
	folder, err := os.MkdirTemp("", "conclave-demo-")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(folder, "proxy")
	proxy := c.kubectl(ctx, "proxy", "--unix-socket="+socket, "--accept-paths=^"+ledgerPath)
	if err := proxy.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	background.Go(func() {
		_ = proxy.Wait() // It ends with ctx. If it ends before, the ledger doesn't respond.
		_ = os.RemoveAll(folder)
	})
	return newProxiedLedger(socket), nil
}

func newProxiedLedger(socket string) *proxiedLedger {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &proxiedLedger{http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 2 * time.Second}}
}

func (p *proxiedLedger) read(ctx context.Context) (locks, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+ledgerPath+"invariant", nil)
	if err != nil {
		return locks{}, err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return locks{}, fmt.Errorf("cannot read the ledger: %w", err)
	}
	defer response.Body.Close()
	var verdict struct {
		OK             *bool
		Violation      string
		Claims, Tokens int
	}
	// The ledger responds with status 500 if the invariant is violated. An error of the API server has other fields.
	if err := json.NewDecoder(response.Body).Decode(&verdict); err != nil || verdict.OK == nil {
		return locks{}, fmt.Errorf("cannot read the ledger: the response has status %s", response.Status)
	}
	return locks{Granted: verdict.Claims, Tenures: verdict.Tokens, Violation: verdict.Violation}, nil
}

// awaitLocks reads the ledger until a condition holds, and fails if a lock was held twice.
func (s *demo) awaitLocks(ctx context.Context, condition string, holds func(locks) bool) (locks, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitShort, fmt.Errorf("timed out after %s waiting for %s", waitShort, condition))
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		now, err := s.ledger.read(ctx)
		switch {
		case err != nil: // The proxy, or the ledger, may just be starting.
		case now.Violation != "":
			return now, errors.New(now.String())
		case holds(now):
			return now, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return now, errors.Join(context.Cause(ctx), err)
		}
	}
}

// awaitNextTenure waits until more coordinators than before have granted locks.
func (s *demo) awaitNextTenure(ctx context.Context, before locks) error {
	now, err := s.awaitLocks(ctx, "the next coordinator to grant locks", func(now locks) bool { return now.Tenures > before.Tenures })
	if err != nil {
		return err
	}
	s.printf("locks: %s", now)
	return nil
}
