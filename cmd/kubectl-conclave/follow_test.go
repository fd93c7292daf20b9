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
)

// gate stands before the API server, and can be closed.
type gate struct {
	*httptest.Server
	closed, forgetful atomic.Bool
	watches, lists    atomic.Int32
}

func newGate(t *testing.T) *gate {
	t.Helper()
	transport, err := rest.TransportFor(apiServer.Environment.Config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(apiServer.Environment.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watches := r.URL.Query().Has("watch")
		switch {
		case g.closed.Load():
			http.Error(w, "closed", http.StatusServiceUnavailable)
			return
		case watches && g.forgetful.CompareAndSwap(true, false):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
			return
		case watches:
			g.watches.Add(1)
		case strings.HasSuffix(r.URL.Path, "/electiongroups"): // and not what there is at all
			g.lists.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		g.CloseClientConnections()
		g.Close()
	})
	return g
}

// follow follows a group through the gate; each change is its term.
func (g *gate) follow(t *testing.T, s *server) (terms <-chan string) {
	t.Helper()
	c, err := client.NewWithWatch(&rest.Config{Host: g.URL}, client.Options{Scheme: s.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 100)
	f := follower{
		client: c, namespace: s.namespace, name: "ledger", pause: time.Millisecond,
		changed: func(g *v1.ElectionGroup) {
			if g == nil {
				said <- "gone"
				return
			}
			said <- fmt.Sprint(g.Status.Term)
		},
		lost: func(err error) {
			if err == nil {
				said <- "back"
				return
			}
			said <- "lost"
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := f.run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return said
}

func next(t *testing.T, said <-chan string, want ...string) {
	t.Helper()
	for _, want := range want {
		select {
		case got := <-said:
			if got != want {
				t.Fatalf("the follower tells %q, want %q", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("the follower tells nothing, want %q", want)
		}
	}
}

func TestAnInterruptedWatchIsResumedWithoutLosingAChange(t *testing.T) {
	s := connect(t)
	g := s.group(t, "ledger")
	at := newGate(t)
	said := at.follow(t, s)
	next(t, said, "100")
	s.elect(t, g, 1, 101)
	next(t, said, "101")

	at.closed.Store(true)
	at.CloseClientConnections()
	next(t, said, "lost")
	s.elect(t, g, 2, 102)
	s.elect(t, g, 1, 103)
	at.closed.Store(false)
	next(t, said, "back", "102", "103")
	if lists := at.lists.Load(); lists != 1 {
		t.Errorf("the group was listed %d times, want once: a watch goes on where it was", lists)
	}
}

func TestAWatchThatIsTooOldBeginsAnew(t *testing.T) {
	s := connect(t)
	g := s.group(t, "ledger")
	at := newGate(t)
	said := at.follow(t, s)
	next(t, said, "100")
	// Not before it watches, or it would list for another reason.
	for at.watches.Load() == 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("it never watched")
		}
	}
	at.forgetful.Store(true)
	at.CloseClientConnections()
	// What went by meanwhile may be lost, but not how it is now.
	s.elect(t, g, 1, 101)
	for {
		select {
		case got := <-said:
			if got == "101" {
				if lists := at.lists.Load(); lists != 2 {
					t.Errorf("the group was listed %d times, want twice", lists)
				}
				return
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the present state wasn't told")
		}
	}
}

func TestWhoMayNotWatchIsToldAndNotKeptWaiting(t *testing.T) {
	s := connect(t)
	as := &rest.Config{Host: apiServer.Environment.Config.Host, TLSClientConfig: apiServer.Environment.Config.TLSClientConfig}
	as.Impersonate.UserName = "nobody@example.org"
	c, err := client.NewWithWatch(as, client.Options{Scheme: s.Scheme(), Mapper: s.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	f := follower{client: c, namespace: s.namespace, name: "ledger", pause: time.Millisecond, lost: func(err error) { t.Errorf("lost: %v", err) }}
	err = f.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "is forbidden") || strings.Contains(err.Error(), "\n") {
		t.Errorf("following ends with %v, want one line that it is forbidden", err)
	}
}

func TestAScreenFitsTheTerminal(t *testing.T) {
	var lines []string
	for i := range 30 {
		lines = append(lines, fmt.Sprint(i, strings.Repeat("ä", 100)))
	}
	got := cropped(lines, 20, 10)
	if len(got) != 10 {
		t.Fatalf("%d lines, want 10", len(got))
	}
	if !strings.HasPrefix(got[0], "0ä") || !strings.HasPrefix(got[9], "29ä") {
		t.Errorf("the first and the last line are %q and %q, want both ends", got[0], got[9])
	}
	for _, line := range got {
		if letters := len([]rune(line)); letters != 20 {
			t.Errorf("%q has %d letters, want 20", line, letters)
		}
	}
	if got := cropped(lines[:3], 200, 10); len(got) != 3 || got[2] != lines[2] {
		t.Errorf("what fits became %q", got)
	}
}
