package client

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// testHost is a machine with one port on an in-memory network. A goroutine that waits on a real connection keeps the
// clock of a synctest bubble from advancing; one that waits on a connection of testHost doesn't.
type testHost struct {
	mu       sync.Mutex
	listener *testListener
}

// Listen opens the port. Dialing is refused before Listen and after the testListener is closed.
func (h *testHost) Listen() net.Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listener = &testListener{calls: make(chan net.Conn), closed: make(chan struct{})}
	return h.listener
}

// DialContext dials the host, whatever the address. It fits http.Transport.
func (h *testHost) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	h.mu.Lock()
	l := h.listener
	h.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	here, there := net.Pipe()
	select {
	case l.calls <- there:
		return here, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type testListener struct {
	calls  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *testListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.calls:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *testListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *testListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7374} }
