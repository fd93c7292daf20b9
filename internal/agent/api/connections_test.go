package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestConnectionsAreLimited: clients must not exhaust the memory of an agent, whether they
// are idle, or have sent a part of a request.
func TestConnectionsAreLimited(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, listener, New(newFakeGroup(), nil))
	}()
	defer func() {
		cancel()
		expect.Succeed(t, <-ended)
	}()
	var conns []net.Conn
	for i := range localLimits.Unpinned + localLimits.Unpinned/2 {
		conn, err := net.Dial("tcp", listener.Addr().String())
		must.Succeed(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if i%2 == 0 {
			if _, err := io.WriteString(conn, "POST /v1/groups/ledger/step-down HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
			continue
		}
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // it ends with the connection
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatal("got no response on the newest connection:", err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns[:2] {
		// The server's own timeouts are longer.
		must.Succeed(t, conn.SetReadDeadline(time.Now().Add(readTimeout/2)))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("one of the oldest connections is still open")
		}
	}
}
