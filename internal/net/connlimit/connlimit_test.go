package connlimit_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/net/connlimit"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// pair is both ends of a connection.
type pair struct {
	client net.Conn
	*connlimit.Conn
}

// server is a limited listener on all loopback addresses.
type server struct {
	t *testing.T
	*connlimit.Listener
}

func listen(t *testing.T, limits connlimit.Limits) *server {
	t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	must.Succeed(t, err)
	t.Cleanup(func() { inner.Close() })
	return &server{t, connlimit.New(inner, limits)}
}

// connect connects from a host 127.0.0.N.
func (s *server) connect(host byte) pair {
	s.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}
	_, port, err := net.SplitHostPort(s.Addr().String())
	must.Succeed(s.t, err)
	client, err := dialer.DialContext(s.t.Context(), "tcp", "127.0.0.1:"+port)
	must.Succeed(s.t, err)
	s.t.Cleanup(func() { client.Close() })
	accepted, err := s.Accept()
	must.Succeed(s.t, err)
	limited, ok := accepted.(*connlimit.Conn)
	if !ok {
		s.t.Fatalf("got a %T", accepted)
	}
	return pair{client, limited}
}

// send sends bytes, and returns what the server's Read returns.
func (p pair) send(t *testing.T, n int) error {
	t.Helper()
	if _, err := p.client.Write(make([]byte, n)); err != nil {
		return err
	}
	_, err := io.ReadFull(p.Conn, make([]byte, n))
	return err
}

func (p pair) wantOpen(t *testing.T, what string) {
	t.Helper()
	if err := p.send(t, 1); err != nil {
		t.Errorf("%s: got %v, want an open connection", what, err)
	}
}

func (p pair) wantClosed(t *testing.T, what string) {
	t.Helper()
	must.Succeed(t, p.client.SetReadDeadline(time.Now().Add(testwait.Limit)))
	if n, err := io.Copy(io.Discard, p.client); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: got %d bytes, %v, want a closed connection", what, n, err)
	}
}

func TestOldestConnectionOfTheHostIsClosed(t *testing.T) {
	s := listen(t, connlimit.Limits{Unpinned: 10, UnpinnedPerHost: 2})
	other, first, second, third := s.connect(2), s.connect(1), s.connect(1), s.connect(1)
	first.wantClosed(t, "the oldest of the host")
	for what, p := range map[string]pair{"another host": other, "the second": second, "the third": third} {
		p.wantOpen(t, what)
	}
}

// TestHostWithMostConnectionsLoses: a host that has few connections keeps them, although they are the oldest.
func TestHostWithMostConnectionsLoses(t *testing.T) {
	s := listen(t, connlimit.Limits{Unpinned: 4, UnpinnedPerHost: 3})
	honest := s.connect(9)
	attackers := []pair{s.connect(1), s.connect(1), s.connect(1)}
	next := s.connect(2)
	attackers[0].wantClosed(t, "the oldest of the host with most")
	honest.wantOpen(t, "the oldest of all")
	next.wantOpen(t, "the newest")
}

func TestBytesAreLimitedUntilPinned(t *testing.T) {
	s := listen(t, connlimit.Limits{Bytes: 1000})
	greedy, pinned := s.connect(1), s.connect(1)
	must.Succeed(t, greedy.send(t, 1000))
	if err := greedy.send(t, 1); err == nil {
		t.Error("got more bytes than the limit")
	}
	greedy.wantClosed(t, "too many bytes")
	for range 2 {
		if !pinned.Pin() {
			t.Fatal("cannot pin")
		}
	}
	expect.Succeedf(t, pinned.send(t, 5000), "pinned")
	expect.Equalf(t, greedy.Pin(), false, "pinned a closed connection")
}

func TestConnectionWithMostBytesIsClosed(t *testing.T) {
	s := listen(t, connlimit.Limits{Bytes: 1000, TotalBytes: 1000})
	large, small := s.connect(1), s.connect(2)
	must.Succeed(t, large.send(t, 900))
	must.Succeedf(t, small.send(t, 200), "small")
	large.wantClosed(t, "most bytes")
	if err := small.send(t, 700); err != nil { // The bytes of a closed connection no longer count.
		t.Error("small:", err)
	}
}

func TestUnpinnedConnectionExpires(t *testing.T) {
	s := listen(t, connlimit.Limits{Lifetime: 50 * time.Millisecond})
	pinned := s.connect(1)
	pinned.Pin()
	s.connect(1).wantClosed(t, "expired")
	pinned.wantOpen(t, "pinned")
}

func TestPinnedConnectionsAreLimited(t *testing.T) {
	s := listen(t, connlimit.Limits{Unpinned: 2, Pinned: 1})
	first, second := s.connect(1), s.connect(1)
	if !first.Pin() || second.Pin() {
		t.Fatal("want the first one pinned only")
	}
	first.Close()
	expect.Equalf(t, second.Pin(), true, "a closed connection counts no more")
	second.Unpin()
	second.wantOpen(t, "unpinned again")
	s.connect(1)
	s.connect(1)
	second.wantClosed(t, "unpinned again, and the oldest")
}

func TestUsedConnectionIsTheNewest(t *testing.T) {
	s := listen(t, connlimit.Limits{Unpinned: 2})
	first, second := s.connect(1), s.connect(1)
	first.Use()
	s.connect(1)
	second.wantClosed(t, "not used since")
	first.wantOpen(t, "used")
}

func TestCloseUnpinned(t *testing.T) {
	s := listen(t, connlimit.Limits{})
	pinned, unpinned := s.connect(1), s.connect(1)
	pinned.Pin()
	s.CloseUnpinned()
	unpinned.wantClosed(t, "unpinned")
	s.connect(1).wantClosed(t, "accepted later")
	pinned.wantOpen(t, "pinned")
}
