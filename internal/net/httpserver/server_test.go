package httpserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/net/httpserver"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

const (
	hostA = "127.0.0.2"
	hostB = "127.0.0.3"
)

var limits = httpserver.Limits{
	Connections: 8, ConnectionsPerHost: 4, Body: 64 << 10, Bodies: 132 << 10, Timeout: time.Minute,
}

// start serves a handler that responds with the body of each request.
func start(t *testing.T, limits httpserver.Limits) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	server := &httpserver.Server{
		Name: "the test", Listener: listener, Limits: limits, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(w, r.Body); err != nil {
				t.Errorf("read the body: %v", err)
			}
		}),
	}
	if err := server.Check(nil); err == nil {
		t.Error("got no error before the server serves")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Start(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	testwait.Until(t, "the server serves", func() bool { return server.Check(nil) == nil })
	return listener.Addr().String()
}

// client is a connection from one of several hosts.
type client struct {
	net.Conn
	t        *testing.T
	response *bufio.Reader
}

func connect(t *testing.T, host, address string) *client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &client{Conn: conn, t: t, response: bufio.NewReader(conn)}
}

// begin sends the header of a request, and a part of its body.
func (c *client) begin(length, sent int) {
	c.t.Helper()
	_, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s",
		length, strings.Repeat("x", sent))
	must.Succeed(c.t, err)
}

// status reads the response. It returns 0 if the server has closed the connection.
func (c *client) status() int {
	c.t.Helper()
	must.Succeed(c.t, c.SetReadDeadline(time.Now().Add(testwait.Limit)))
	response, err := http.ReadResponse(c.response, nil)
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Fatal("the server neither responded nor closed the connection")
	}
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	must.Succeed(c.t, err)
	return response.StatusCode
}

// hasResponse reports whether the server has responded, or closed the connection.
func (c *client) hasResponse() bool {
	c.t.Helper()
	must.Succeed(c.t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := c.response.Peek(1)
	timeout := net.Error(nil)
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

// post sends a whole request.
func (c *client) post(length int) int {
	c.t.Helper()
	c.begin(length, length)
	return c.status()
}

func (c *client) want(what string, got, want int) {
	c.t.Helper()
	expect.Equalf(c.t, got, want, "%s: status", what)
}

func TestConnectionsAreLimited(t *testing.T) {
	address := start(t, limits)
	var clients []*client
	for range limits.ConnectionsPerHost + 1 {
		c := connect(t, hostA, address)
		c.want("a new connection", c.post(1), http.StatusOK)
		clients = append(clients, c)
	}
	clients[0].want("the oldest one of the host", clients[0].status(), 0)
	clients[1].want("the next one", clients[1].post(1), http.StatusOK)
}

func TestUnfinishedBodiesOfOneHostLeaveRoomForOthers(t *testing.T) {
	address := start(t, limits)
	attack := connect(t, hostA, address)
	attack.begin(int(limits.Body), int(limits.Body)-1)
	second := connect(t, hostA, address)
	testwait.Until(t, "the memory of the first host is used up", func() bool {
		if second.post(8<<10) == http.StatusServiceUnavailable {
			return true
		}
		if attack.hasResponse() { // There was no memory for the attack while the server read the other body.
			attack = connect(t, hostA, address)
			attack.begin(int(limits.Body), int(limits.Body)-1)
		}
		return false
	})
	other := connect(t, hostB, address)
	other.want("of another host", other.post(8<<10), http.StatusOK)
	_, err := io.WriteString(attack, "x")
	must.Succeed(t, err)
	attack.want("the finished request", attack.status(), http.StatusOK)
	again := connect(t, hostA, address)
	again.want("after that", again.post(8<<10), http.StatusOK)
}

func TestLargeBodyIsRefused(t *testing.T) {
	address := start(t, limits)
	largest := connect(t, hostA, address)
	largest.want("the largest body", largest.post(int(limits.Body)), http.StatusOK)
	announced := connect(t, hostA, address)
	announced.begin(int(limits.Body)+1, 0)
	announced.want("a body that is announced as too large", announced.status(), http.StatusRequestEntityTooLarge)
	chunked := connect(t, hostA, address)
	if _, err := fmt.Fprintf(chunked, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n",
		limits.Body+1, strings.Repeat("x", int(limits.Body)+1)); err != nil {
		t.Fatal(err)
	}
	chunked.want("a body of unknown length", chunked.status(), http.StatusRequestEntityTooLarge)
}

func TestSlowRequestEnds(t *testing.T) {
	short := limits
	short.Timeout = 100 * time.Millisecond
	address := start(t, short)
	for what, send := range map[string]string{
		"nothing": "", "half a header": "POST / HT",
		"half a body": "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx",
	} {
		c := connect(t, hostA, address)
		_, err := io.WriteString(c, send)
		must.Succeed(t, err)
		if status := c.status(); status == http.StatusOK {
			t.Errorf("%s: got status %d, want the end of the connection", what, status)
		}
	}
}
