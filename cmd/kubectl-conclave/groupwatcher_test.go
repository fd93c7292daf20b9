package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/groupwatch"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// faultyProxy is a proxy in front of the API server, and can fail.
type faultyProxy struct {
	*httptest.Server
	// If unavailable is set, the proxy refuses all requests. If expired is set, it
	// refuses the next watch because its resource version is too old.
	unavailable, expired atomic.Bool
	// refused is a resource of which the proxy refuses all lists.
	refused        atomic.Pointer[string]
	watches, lists atomic.Int32
}

func newFaultyProxy(t *testing.T) *faultyProxy {
	t.Helper()
	transport, err := rest.TransportFor(apiServer.Environment.Config)
	must.Succeed(t, err)
	to, err := url.Parse(apiServer.Environment.Config.Host)
	must.Succeed(t, err)
	p := &faultyProxy{}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watches, refused := r.URL.Query().Has("watch"), p.refused.Load()
		switch {
		case p.unavailable.Load(), refused != nil && strings.HasSuffix(r.URL.Path, "/"+*refused):
			http.Error(w, "unavailable", http.StatusServiceUnavailable)
			return
		case watches && p.expired.CompareAndSwap(true, false):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
			return
		case watches:
			p.watches.Add(1)
		case strings.HasSuffix(r.URL.Path, "/electiongroups"): // no discovery request
			p.lists.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// terms is a groupwatch.Handler.
type terms struct {
	received     chan<- string
	disconnected bool
}

func (h *terms) Replace(groups []v1.ElectionGroup) {
	h.Connected()
	for i := range groups {
		h.Set(&groups[i])
	}
}

func (h *terms) Set(g *v1.ElectionGroup)  { h.received <- fmt.Sprint(g.Status.Term) }
func (h *terms) Delete(*v1.ElectionGroup) { h.received <- "deleted" }

func (h *terms) Connected() {
	if h.disconnected {
		h.disconnected = false
		h.received <- "connected"
	}
}

func (h *terms) Failed(error) error {
	if !h.disconnected {
		h.disconnected = true
		h.received <- "disconnected"
	}
	return nil
}

// watchTerms watches the group ledger through the proxy. The events are the terms of
// the group, or deleted, disconnected and connected.
func (p *faultyProxy) watchTerms(t *testing.T, e *env) (events <-chan string) {
	t.Helper()
	c, err := client.NewWithWatch(&rest.Config{Host: p.URL}, client.Options{Scheme: e.Scheme()})
	must.Succeed(t, err)
	received := make(chan string, 100)
	w := groupwatch.Watcher{
		Client: c, Namespace: e.Namespace, RetryInterval: time.Millisecond, Handler: &terms{received: received},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		expect.Succeed(t, w.Run(ctx))
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return received
}

// expectEvents waits for these events in this order.
func expectEvents(t *testing.T, events <-chan string, want ...string) {
	t.Helper()
	for _, want := range want {
		must.Equalf(t, await(t, events, want), want, "event")
	}
}

func TestInterruptedWatchResumesWithoutLosingChanges(t *testing.T) {
	e := newEnv(t)
	g := e.CreateGroup(t, "ledger")
	proxy := newFaultyProxy(t)
	events := proxy.watchTerms(t, e)
	expectEvents(t, events, "100")
	e.SetCoordinator(t, g, 1, 101)
	expectEvents(t, events, "101")

	proxy.unavailable.Store(true)
	proxy.CloseClientConnections()
	expectEvents(t, events, "disconnected")
	e.SetCoordinator(t, g, 2, 102)
	e.SetCoordinator(t, g, 1, 103)
	proxy.unavailable.Store(false)
	expectEvents(t, events, "connected", "102", "103")
	expect.Equalf(t, proxy.lists.Load(), 1, "list requests (a resumed watch needs none)")
}

func TestExpiredWatchListsAgain(t *testing.T) {
	e := newEnv(t)
	g := e.CreateGroup(t, "ledger")
	proxy := newFaultyProxy(t)
	events := proxy.watchTerms(t, e)
	expectEvents(t, events, "100")
	// If the connections were closed before it watches, it would list for another reason.
	testwait.Until(t, "the group is watched", func() bool { return proxy.watches.Load() > 0 })
	proxy.expired.Store(true)
	proxy.CloseClientConnections()
	// Changes in between may be lost, but not the current state.
	e.SetCoordinator(t, g, 1, 101)
	for got := ""; got != "101"; {
		got = await(t, events, "101")
	}
	expect.Equalf(t, proxy.lists.Load(), 2, "list requests")
}
