package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// browser is an HTTP client with cookies.
type browser struct {
	*http.Client
	e *env
}

func (e *env) tlsConfig() *tls.Config { return &tls.Config{RootCAs: e.roots, ServerName: "localhost"} }

func (e *env) browser() *browser {
	e.t.Helper()
	cookies, err := cookiejar.New(nil)
	must.Succeed(e.t, err)
	transport := &http.Transport{TLSClientConfig: e.tlsConfig()}
	e.browsers++
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, e.browsers)}} // Each browser is another host.
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", e.address)
	}
	e.t.Cleanup(transport.CloseIdleConnections)
	return &browser{&http.Client{
		Transport: transport, Jar: cookies, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, e}
}

// answer is a response that has been read.
type answer struct {
	StatusCode   int
	Status, Text string
	Header       http.Header
}

// send sends a request.
func (b *browser) send(method, path, body string, header map[string]string) answer {
	b.e.t.Helper()
	request, err := http.NewRequestWithContext(b.e.t.Context(), method, "https://localhost"+path, strings.NewReader(body))
	must.Succeed(b.e.t, err)
	if body != "" {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for key, value := range header {
		if key == "Host" {
			request.Host = value
		}
		request.Header.Set(key, value)
	}
	response, err := b.Do(request)
	must.Succeed(b.e.t, err)
	defer response.Body.Close()
	if response.Header.Get("Content-Type") == "text/event-stream" {
		b.e.t.Fatalf("%s %s: got events, want another response", method, path)
	}
	text, err := io.ReadAll(response.Body)
	must.Succeed(b.e.t, err)
	return answer{response.StatusCode, response.Status, string(text), response.Header}
}

func (b *browser) get(path string, header map[string]string) answer {
	b.e.t.Helper()
	return b.send(http.MethodGet, path, "", header)
}

// login logs in, and returns the status.
func (b *browser) login(token string) int {
	b.e.t.Helper()
	return b.send(http.MethodPost, "/login", "token="+token, nil).StatusCode
}

// events are those of a stream. The channel is closed when the stream has ended.
type events <-chan event

type event struct{ kind, data string }

// open opens a stream. An empty token means that the cookie identifies the user.
func (b *browser) open(path, token string) events {
	b.e.t.Helper()
	ctx, cancel := context.WithCancel(b.e.t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost"+path, http.NoBody)
	must.Succeed(b.e.t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := b.Do(request)
	must.Succeed(b.e.t, err)
	if response.StatusCode != http.StatusOK {
		b.e.t.Fatalf("%s: got status %s, want events", path, response.Status)
	}
	found := make(chan event, 100)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(found)
		defer response.Body.Close()
		kind := ""
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				kind = name
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && kind != "alive" && kind != "connection" {
				select {
				case found <- event{kind, data}:
				case <-ctx.Done():
				}
			}
		}
	})
	b.e.t.Cleanup(func() {
		cancel()
		reading.Wait()
	})
	return found
}

// next returns the next event, and fails if the stream has ended.
func (e *env) next(from events, what string) event {
	e.t.Helper()
	select {
	case got, ok := <-from:
		if !ok {
			e.t.Fatalf("%s: the stream has ended", what)
		}
		return got
	case <-time.After(testwait.Limit):
		e.t.Fatalf("timed out waiting for %s", what)
	}
	return event{}
}

// awaitEnd waits until a stream ends, and returns how long that took.
func (e *env) awaitEnd(of events, what string) time.Duration {
	e.t.Helper()
	begin := time.Now()
	timeout := time.After(testwait.Limit)
	for {
		select {
		case _, ok := <-of:
			if !ok {
				return time.Since(begin)
			}
		case <-timeout:
			e.t.Fatalf("timed out waiting for the end of %s", what)
		}
	}
}
