package workload

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// unreachable returns the address of a port that ignores connections, as a node does that has
// lost its power.
func unreachable(t *testing.T) string {
	t.Helper()
	listener, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(listener) })
	if err := errors.Join(syscall.Bind(listener, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(listener, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(listener)
	if err != nil {
		t.Fatal(err)
	}
	bound, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("got address %+v, want IPv4", name)
	}
	address := (&net.TCPAddr{IP: bound.Addr[:], Port: bound.Port}).String()
	for { // The kernel accepts connections until the queue is full.
		conn, err := (&net.Dialer{Timeout: 100 * time.Millisecond}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// A caller must know whether a process that is gone may have received the request.
func TestCallWithoutConnectionIsDialError(t *testing.T) {
	p := &Process{addresses: map[string]string{"gone": unreachable(t)}, http: http.Client{Transport: newTransport()}}
	err := p.Call(t.Context(), "gone", "/token", nil, nil)
	if dial := new(net.OpError); !errors.As(err, &dial) || dial.Op != "dial" {
		t.Errorf("got error %v, want one of dialing", err)
	}
}

func TestCheckOfStoppedLedgerEnds(t *testing.T) {
	for name, respond := range map[string]func(http.ResponseWriter){
		"no response": func(http.ResponseWriter) {},
		"no end":      func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK); _ = http.NewResponseController(w).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				respond(w)
				<-ctx.Done()
			}))
			defer server.Close()
			defer cancel()
			if _, err := readLedger(ctx, server.URL, 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "no complete response within 100ms") {
				t.Errorf("got error %v, want that the ledger doesn't respond", err)
			}
		})
	}
}
