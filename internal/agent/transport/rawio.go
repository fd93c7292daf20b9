package transport

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawConn is a TCP connection that reads and writes without informing the scheduler of
// the Go runtime about the system calls. The calls never block, so the scheduler needn't
// know. If it does, it wakes its monitor thread after each pause, which costs more than
// everything else that a heartbeat does.
type rawConn struct {
	*net.TCPConn

	control syscall.RawConn
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
	return &rawConn{TCPConn: tcp, control: control}
}

// Read implements net.Conn.
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

// Write implements net.Conn.
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
		n, _, errno := unix.RawSyscall6(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(buffer))), uintptr(len(buffer)), flags, 0, 0)
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
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, errno)}
}
