package api

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestIdleConnectionsAreLimited: idle clients must not exhaust the memory of an agent.
func TestIdleConnectionsAreLimited(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, listener, methods{http.MethodGet: healthz})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	var conns []net.Conn
	for range localConnectionsMax + localConnectionsMax/2 {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // it ends with the connection
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatal("got no response on the newest connection:", err)
		}
		conns = append(conns, conn)
	}
	if err := conns[0].SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conns[0]); err != nil {
		t.Error("oldest connection is still open:", err)
	}
}
