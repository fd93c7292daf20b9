package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/net/connlimit"
)

// keepAlive detects that a peer is unreachable while nothing is sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 3}

// Listen opens the port on which peers connect.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive, Control: setOptions}
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return closeListenerFirst(listener), nil
}

// highDescriptor is higher than the descriptors of connections.
const highDescriptor = 1000

// closeListenerFirst makes the kernel close the listener before the connections
// when the process is killed. The kernel closes descriptors from the highest down,
// so the listener gets a second, high descriptor. A peer whose connection ends is
// then refused at once, and needn't try again. If there is no such descriptor, the
// peer tries again.
func closeListenerFirst(listener net.Listener) net.Listener {
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return listener
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return listener
	}
	high, failed := 0, error(nil)
	err = raw.Control(func(fd uintptr) { high, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, highDescriptor) })
	if err != nil || failed != nil {
		return listener
	}
	return &highListener{TCPListener: tcp, descriptor: high}
}

// highListener is a listener with a second descriptor.
type highListener struct {
	*net.TCPListener

	descriptor int
	once       sync.Once
}

// Accept implements net.Listener.
func (l *highListener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil {
		return nil, err
	}
	return withRawIO(c), nil
}

// Close closes both descriptors.
func (l *highListener) Close() error {
	err := l.TCPListener.Close()
	l.once.Do(func() { err = errors.Join(err, unix.Close(l.descriptor)) })
	return err
}

// roundTrip returns the smoothed round-trip time plus four times its variation,
// from which the kernel computes its retransmission timeout. It returns 0 if that
// isn't available.
func roundTrip(raw net.Conn) time.Duration {
	if limited, ok := raw.(*connlimit.Conn); ok {
		raw = limited.NetConn()
	}
	socket, ok := raw.(syscall.Conn)
	if !ok {
		return 0
	}
	control, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	var rtt time.Duration
	err = control.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			rtt = time.Duration(info.Rtt+4*info.Rttvar) * time.Microsecond
		}
	})
	if err != nil {
		return 0
	}
	return rtt
}

// setOptions bounds how long sent bytes may remain unacknowledged before the
// kernel closes the connection. Accepted connections inherit it from the listener.
func setOptions(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(tcpUserTimeout.Milliseconds()))
	})
	return errors.Join(err, failed)
}
