package transport_test

import (
	"net"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/agent/transport"
)

// cable is a listener that can be cut off: the kernel then drops what arrives for
// it and its connections, and nobody is told. No packet is answered, neither by
// an acknowledgement nor by a reset.
type cable struct {
	tcpListener

	t        *testing.T
	mu       sync.Mutex
	accepted []*net.TCPConn
}

// tcpListener is what Listen returns.
type tcpListener interface {
	net.Listener
	syscall.Conn
	AcceptTCP() (*net.TCPConn, error)
}

func (c *cable) Accept() (net.Conn, error) {
	conn, err := c.AcceptTCP()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepted = append(c.accepted, conn)
	return conn, nil
}

// cut drops what arrives from now on.
func (c *cable) cut() {
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	c.each(func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	})
}

func (c *cable) heal() {
	c.each(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) })
}

func (c *cable) each(do func(fd int) error) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range append([]syscall.Conn{c.tcpListener}, conns(c.accepted)...) {
		control, err := end.SyscallConn()
		if err != nil {
			continue // It is closed.
		}
		var failed error
		if err := control.Control(func(fd uintptr) { failed = do(int(fd)) }); err == nil && failed != nil {
			c.t.Error(failed)
		}
	}
}

func conns(from []*net.TCPConn) (to []syscall.Conn) {
	for _, conn := range from {
		to = append(to, conn)
	}
	return to
}

// TestAPeerThatVanishesIsGivenUpAndMetAgain: by both sides, also when neither has
// anything to say. That nobody answers doesn't mean that the process has ended.
func TestAPeerThatVanishesIsGivenUpAndMetAgain(t *testing.T) {
	for what, talks := range map[string]bool{"while they talk": true, "while they are silent": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newTown(t)
			var line *cable
			a := w.settle("a", "127.0.0.1:0", 1)
			b := w.settle("b", "127.0.0.1:0", 2, func(c *transport.Config) {
				line = &cable{tcpListener: c.Listener.(tcpListener), t: t} //nolint:errcheck,forcetypeassert // It is one.
				c.Listener = line
			})
			a.SetPeers(map[string]string{"b": b.address})
			b.SetPeers(map[string]string{"a": a.address})
			a.known("b")
			b.known("a")
			line.cut()
			eventually(t, "both have given the connection up", func() bool {
				if talks {
					a.Send("b", transport.Outgoing{Frame: letter(1)})
					b.Send("a", transport.Outgoing{Frame: letter(1)})
				}
				return a.log.count("a connection has ended") > 0 && b.log.count("a connection has ended") > 0
			})
			eventually(t, "a has called in vain", func() bool { return a.log.count("no connection") > 0 })
			line.heal()
			a.says(b, 2)
			b.says(a, 2)
			a.wantsNoneGone()
			b.wantsNoneGone()
		})
	}
}
