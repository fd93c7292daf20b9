package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// result is what came of an attempt to reach a peer.
type result uint8

const (
	// unanswered: nothing is known.
	unanswered result = iota
	// refused: nobody listens at the place in question.
	refused
	// brokeOff: somebody listened, and closed the connection in the middle. A
	// process that is being killed looks like that for a moment.
	brokeOff
)

// A process that is ending closes its sockets one after the other, the listener
// among the last. It takes next to no time once the first is closed, so whoever
// is let in and cut off asks again at once, and then ever later.
const (
	dying        = 50 * time.Microsecond
	dyingLongest = 2 * time.Millisecond
	dyingMax     = 50
	// knockLimit is how long to look whether a new connection is closed at once.
	knockLimit = 20 * time.Millisecond
)

// call makes a connection with a peer.
func (m *Transport) call(ctx context.Context, address, name string) (*conn, error) {
	c, err := m.reach(ctx, address, name)
	if err != nil && ctx.Err() == nil {
		m.Log.Debug("no connection", "peer", name, "address", address, "error", err)
	}
	return c, err
}

func (m *Transport) reach(ctx context.Context, address, name string) (*conn, error) {
	raw, err := m.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	interrupt := context.AfterFunc(ctx, func() { _ = raw.Close() })
	c, err := m.greet(ctx, raw, name)
	if !interrupt() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close() // The reason to close it is what counts.
		return nil, err
	}
	c.dialled = address
	c.placed.Store(true)
	return c, nil
}

// knock finds out whether anybody listens at an address.
func (m *Transport) knock(ctx context.Context, address string) error {
	raw, err := m.dial(ctx, address)
	if err != nil {
		return err
	}
	defer raw.Close()
	if err := raw.SetReadDeadline(time.Now().Add(knockLimit)); err != nil {
		return err
	}
	_, err = raw.Read(make([]byte, 1))
	return err
}

// resultOf says what an attempt tells about the process that was at a place.
func resultOf(err error, place string) result {
	var failed *net.OpError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		if errors.As(err, &failed) && failed.Addr != nil && failed.Addr.String() == place {
			return refused
		}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE):
		return brokeOff
	}
	return unanswered
}

// dial connects from the address on which this agent listens, so that its peers
// and firewalls see one address of it.
func (m *Transport) dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialLimit, KeepAliveConfig: keepAlive, Control: setOptions}
	if own, ok := m.Listener.Addr().(*net.TCPAddr); ok && !own.IP.IsUnspecified() {
		dialer.LocalAddr = &net.TCPAddr{IP: own.IP, Zone: own.Zone}
	}
	return dialer.DialContext(ctx, "tcp", address)
}

// keepAlive finds out about connections on which nothing is sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 3}

// Listen opens the port for peers.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive, Control: setOptions}
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return closedFirst(listener), nil
}

// lastDescriptor is higher than those of connections.
const lastDescriptor = 1000

// closedFirst has the kernel close the listener before the connections when the
// process is killed: it does so from the highest descriptor down. So a peer that
// sees its connection end is refused at once, and needn't ask twice. Where that
// can't be had, it asks twice.
func closedFirst(listener net.Listener) net.Listener {
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return listener
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return listener
	}
	last, failed := 0, error(nil)
	err = raw.Control(func(fd uintptr) { last, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, lastDescriptor) })
	if err != nil || failed != nil {
		return listener
	}
	return &lastListener{TCPListener: tcp, last: last}
}

// lastListener has a second descriptor.
type lastListener struct {
	*net.TCPListener

	last int
	once sync.Once
}

// Close closes both.
func (l *lastListener) Close() error {
	err := l.TCPListener.Close()
	l.once.Do(func() { err = errors.Join(err, unix.Close(l.last)) })
	return err
}

// roundTrip is the smoothed time and four times its variation: what the kernel
// itself waits for before it sends again.
func roundTrip(raw net.Conn) time.Duration {
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		return 0
	}
	control, err := tcp.SyscallConn()
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

// setOptions bounds how long the kernel tries to get bytes to a peer that
// doesn't acknowledge them. Accepted connections inherit it from the listener.
func setOptions(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
	})
	return errors.Join(err, failed)
}
