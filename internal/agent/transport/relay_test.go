package transport_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// relay forwards connections to a member, and can break them.
type relay struct {
	net.Listener

	to string
	mu sync.Mutex
	// pairs are the open connections, and what they are forwarded to.
	pairs map[net.Conn]net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
	must.Succeed(t, err)
	r := &relay{Listener: listener, to: to, pairs: map[net.Conn]net.Conn{}}
	var forwarding sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		r.breakAll()
		forwarding.Wait()
	})
	forwarding.Go(func() {
		for {
			here, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", to)
			if err != nil {
				here.Close()
				continue
			}
			r.mu.Lock()
			r.pairs[here] = there
			r.mu.Unlock()
			for _, way := range [][2]net.Conn{{here, there}, {there, here}} {
				forwarding.Go(func() {
					_, _ = io.Copy(way[0], way[1]) // The error is that of breakAll.
					r.remove(here, there)
				})
			}
		}
	})
	return r
}

// breakAll breaks all connections.
func (r *relay) breakAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for here, there := range r.pairs {
		here.Close()
		there.Close()
	}
	clear(r.pairs)
}

func (r *relay) remove(here, there net.Conn) {
	here.Close()
	there.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pairs, here)
}

// inUse reports whether a connection is forwarded.
func (r *relay) inUse() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pairs) > 0
}
