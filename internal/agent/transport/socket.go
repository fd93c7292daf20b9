package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

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
	if tcp, ok := listener.(*net.TCPListener); ok {
		return &highListener{tcp, closeEarly(tcp, listenerAbove)}, nil
	}
	return listener, nil
}

// highDescriptor is higher than the descriptors of all that the agent has besides peers, such as connections of clients
// (see package proxy). Those of listeners are higher by listenerAbove, which is more than the number of peers.
const (
	highDescriptor = 31_000
	listenerAbove  = 1_000
)

// closeEarly makes the kernel close a socket early when the process is killed. The kernel closes descriptors from the
// highest down. So the listener gets a second, high descriptor, and connections with peers somewhat lower ones: a peer
// whose connection ends is then refused at once, and needn't try again. Thousands of connections of clients end
// later. If there is no such descriptor, the peer tries again, or waits.
func closeEarly(socket syscall.Conn, above int) *descriptor {
	lowest := highDescriptor
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur < highDescriptor+2*listenerAbove {
		most := int(files.Cur) //nolint:gosec // It is low.
		lowest, above = max(most-2*listenerAbove, most/2), min(above, most/4)
	}
	d := &descriptor{number: -1}
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { d.number, _ = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, lowest+above) })
	}
	return d
}

// descriptor is a second one of a socket, or -1.
type descriptor struct {
	number int
	once   sync.Once
}

func (d *descriptor) close() (err error) {
	d.once.Do(func() {
		if d.number >= 0 {
			err = unix.Close(d.number)
		}
	})
	return err
}

type highListener struct {
	*net.TCPListener

	second *descriptor
}

func (l *highListener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil {
		return nil, err
	}
	return withRawIO(c), nil
}

// Close closes both descriptors.
func (l *highListener) Close() error { return errors.Join(l.TCPListener.Close(), l.second.close()) }

// roundTrip returns the smoothed round-trip time plus four times its variation, from which the kernel computes its
// retransmission timeout. It returns 0 if that isn't available.
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

// rawConn is a TCP connection that reads and writes without informing the scheduler of the Go runtime about the system
// calls. The calls never block, so the scheduler needn't know. If it does, it wakes its monitor thread after each
// pause, which costs more than everything else that a heartbeat does.
type rawConn struct {
	*net.TCPConn

	control syscall.RawConn
	second  *descriptor
}

// withRawIO returns a connection that behaves like c.
func withRawIO(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	control, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	return &rawConn{TCPConn: tcp, control: control, second: closeEarly(tcp, 0)}
}

// Close closes both descriptors.
func (c *rawConn) Close() error { return errors.Join(c.TCPConn.Close(), c.second.close()) }

func (c *rawConn) Read(into []byte) (n int, err error) {
	if len(into) == 0 {
		return 0, nil
	}
	var errno syscall.Errno
	waited := c.control.Read(func(fd uintptr) bool {
		n, errno = transfer(unix.SYS_RECVFROM, fd, into)
		return errno != unix.EAGAIN
	})
	switch {
	case waited != nil:
		return 0, waited
	case errno != 0:
		return 0, c.failed("read", errno)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (c *rawConn) Write(from []byte) (n int, err error) {
	var errno syscall.Errno
	waited := c.control.Write(func(fd uintptr) bool {
		for n < len(from) && errno == 0 {
			var sent int
			if sent, errno = transfer(unix.SYS_SENDTO, fd, from[n:]); errno == 0 {
				n += sent
			}
		}
		if errno == unix.EAGAIN {
			errno = 0
			return false
		}
		return true
	})
	switch {
	case waited != nil:
		return n, waited
	case errno != 0:
		return n, c.failed("write", errno)
	}
	return n, nil
}

// transfer calls recvfrom or sendto, and again if a signal interrupts the call.
func transfer(call, fd uintptr, buffer []byte) (int, syscall.Errno) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	for {
		n, _, errno := unix.RawSyscall6(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(buffer))),
			uintptr(len(buffer)), flags, 0, 0)
		switch errno {
		case 0:
			return int(n), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

func (c *rawConn) failed(op string, errno syscall.Errno) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op,
		errno)}
}
