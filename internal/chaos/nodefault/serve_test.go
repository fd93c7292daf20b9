package nodefault_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/chaos/nodefault"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// fakeNode records on its channels what is injected and undone.
type fakeNode struct {
	injected chan nodefault.Request
	undone   chan struct{}
}

func (f *fakeNode) Check(*nodefault.Request) map[string]string {
	return map[string]string{nodefault.Drop: "no nftables"}
}

func (f *fakeNode) Inject(r *nodefault.Request) (func() error, error) {
	if r.Action == nodefault.Isolate {
		return nil, errors.New("no uplink")
	}
	f.injected <- *r
	if r.Action == nodefault.Kill {
		return nil, nil
	}
	return func() error { f.undone <- struct{}{}; return nil }, nil
}

// session is a running server.
type session struct {
	t      *testing.T
	node   *fakeNode
	in     *io.PipeWriter
	out    *bufio.Scanner
	cancel context.CancelFunc
	ended  chan error
}

func serve(t *testing.T) *session {
	t.Helper()
	requests, in := io.Pipe()
	out, responses := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	s := &session{
		t: t, node: &fakeNode{make(chan nodefault.Request, 10), make(chan struct{}, 10)},
		in: in, out: bufio.NewScanner(out), cancel: cancel, ended: make(chan error, 1),
	}
	go func() { s.ended <- nodefault.Serve(ctx, requests, responses, s.node) }()
	t.Cleanup(func() { cancel(); in.Close() })
	return s
}

func (s *session) request(line string) (r nodefault.Response) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.in, line); err != nil {
		s.t.Fatal(err)
	}
	if !s.out.Scan() {
		s.t.Fatal("got no response")
	}
	must.Succeed(s.t, json.Unmarshal(s.out.Bytes(), &r))
	return r
}

// drop requests a fault that lasts.
func (s *session) drop(limit time.Duration) {
	s.t.Helper()
	text, err := json.Marshal(nodefault.Request{Action: nodefault.Drop, Addresses: []string{"10.0.0.1"}, Limit: limit})
	must.Succeed(s.t, err)
	if r := s.request(string(text)); r.Error != "" {
		s.t.Fatal(r.Error)
	}
	if got := <-s.node.injected; got.Addresses[0] != "10.0.0.1" || got.Limit != limit {
		s.t.Errorf("got %+v, want the request", got)
	}
}

// Whatever happens first ends a fault that lasts.
func TestFaultsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		limit time.Duration
		end   func(*session)
		ends  bool
	}{
		"on request":                    {time.Hour, func(s *session) { s.request(`{"action":"undo"}`) }, false},
		"at their limit":                {time.Millisecond, func(*session) {}, false},
		"when the caller was killed":    {time.Hour, func(s *session) { s.in.Close() }, true},
		"when the pod is being deleted": {time.Hour, func(s *session) { s.cancel() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			s.drop(c.limit)
			c.end(s)
			<-s.node.undone
			if c.ends {
				if err := <-s.ended; err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			s.drop(time.Hour) // The next fault is possible.
		})
	}
}

func TestFaultsThatDontLastNeedNoUndo(t *testing.T) {
	s := serve(t)
	for range 2 {
		if r := s.request(`{"action":"kill","containers":["a"]}`); r.Error != "" {
			t.Errorf("got error %s, want none", r.Error)
		}
	}
	s.in.Close()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if len(s.node.injected) != 2 || len(s.node.undone) != 0 {
		t.Errorf("got %d faults of which %d were undone, want 2 and 0", len(s.node.injected), len(s.node.undone))
	}
}

func TestRequestsAreRefused(t *testing.T) {
	s := serve(t)
	if r := s.request(`{"action":"drop"}`); r.Error != "a fault that lasts needs a limit, got 0s" || len(s.node.undone) != 1 {
		t.Errorf("got %+v and %d undone, want a fault without a limit to be refused and undone", r, len(s.node.undone))
	}
	for line, want := range map[string]string{
		`{"action":"isolate","limit":1}`: "no uplink",
		`kill`:                           "invalid character 'k' looking for beginning of value",
	} {
		if r := s.request(line); r.Error != want {
			t.Errorf("%s: got error %q, want %q", line, r.Error, want)
		}
	}
	<-s.node.injected
	s.drop(time.Hour)
	if r := s.request(`{"action":"stop","limit":1}`); r.Error != "another fault lasts" {
		t.Errorf("got error %q, want that another fault lasts", r.Error)
	}
}

func TestCheckIsAnswered(t *testing.T) {
	if r := serve(t).request(`{"action":"check"}`); r.Error != "" || r.Actions[nodefault.Drop] != "no nftables" {
		t.Errorf("got %+v, want the actions of the node", r)
	}
}
