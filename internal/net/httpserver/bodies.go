package httpserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync"

	"github.com/conclave-dev/conclave/internal/net/connlimit"
)

// memory counts the bytes of the bodies of all requests in progress.
type memory struct {
	limit int64

	mu    sync.Mutex
	used  int64
	hosts map[netip.Prefix]int64
}

// reserve reserves n more bytes for a host, and reports whether there are enough. One host
// gets at most half of all.
func (m *memory) reserve(host netip.Prefix, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > m.limit || m.hosts[host]+n > m.limit/2 {
		return false
	}
	m.used += n
	m.hosts[host] += n
	return true
}

func (m *memory) release(host netip.Prefix, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if m.hosts[host] -= n; m.hosts[host] == 0 {
		delete(m.hosts, host)
	}
}

var (
	errTooLarge = errors.New("the body of the request is too large")
	errNoMemory = errors.New("too many requests are in progress; retry later")
)

func limitBodies(handler http.Handler, limits Limits) http.Handler {
	m := &memory{limit: limits.Bodies, hosts: map[netip.Prefix]int64{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			handler.ServeHTTP(w, r)
			return
		}
		client, _ := netip.ParseAddrPort(r.RemoteAddr) // Clients without an IP address count as one host.
		host := connlimit.Host(client.Addr())
		body, reserved, err := readBody(r, m, host, limits.Body)
		defer func() { m.release(host, reserved) }()
		if err != nil {
			w.Header().Set("Connection", "close") // The rest of the body isn't read.
			refuse(w, err, limits.Body)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		handler.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, err error, limit int64) {
	switch {
	case errors.Is(err, errTooLarge):
		http.Error(w, fmt.Sprintf("%s: it must have at most %d bytes", err, limit), http.StatusRequestEntityTooLarge)
	case errors.Is(err, errNoMemory):
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(w, "cannot read the request: "+err.Error(), http.StatusBadRequest)
	}
}

// readBody reads the body of a request, and returns the number of bytes that it has
// reserved. It reserves memory as the body arrives, not as the client announces it.
func readBody(r *http.Request, m *memory, host netip.Prefix, limit int64) (body []byte, reserved int64, err error) {
	if r.ContentLength > limit {
		return nil, 0, errTooLarge
	}
	most := limit + 1 // One more byte shows that the body is too large.
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	for int64(len(body)) < most {
		if len(body) == cap(body) {
			const first = 8 << 10
			size := min(max(first, 2*reserved), most)
			if !m.reserve(host, size-reserved) {
				return nil, reserved, errNoMemory
			}
			reserved = size
			body = append(make([]byte, 0, size), body...)
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, reserved, err
		}
	}
	if int64(len(body)) > limit {
		return nil, reserved, errTooLarge
	}
	return body, reserved, nil
}
