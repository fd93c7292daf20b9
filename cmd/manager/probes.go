package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// probes serves the health probes of the kubelet. It starts before the API server responds: a manager that waits for
// the API server is alive, and restarts with increasing backoff would only delay it.
type probes struct {
	mu    sync.Mutex
	ready []func(*http.Request) error
	open  bool
}

// require adds readiness checks.
func (p *probes) require(checks ...func(*http.Request) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready, p.open = append(p.ready, checks...), true
}

func (p *probes) check(r *http.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open {
		return errors.New("waiting for the API server")
	}
	for _, check := range p.ready {
		if err := check(r); err != nil {
			return err
		}
	}
	return nil
}

func (p *probes) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := p.check(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// serveProbes serves the probes until the context is done.
func (m *manager) serveProbes(ctx context.Context) error {
	server, err := m.newServer(ctx, "health probes", m.healthAddress, readLimits, nil, m.probes.handler())
	if err != nil {
		return err
	}
	go server.Start(ctx) //nolint:errcheck // the kubelet notices a failure
	return nil
}
