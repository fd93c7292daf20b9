package agents

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// agentConn is the connection below TLS. A goroutine that waits for data in crypto/tls needs a
// stack of eight kilobytes, so a session waits in await instead.
type agentConn struct {
	net.Conn
	// If raw is set, Read doesn't wait, but returns errNoData.
	raw syscall.RawConn
}

// errNoData is the error of a Read that would have to wait. Package tls continues after it, as
// after an expired deadline.
var errNoData error = noData{}

type noData struct{}

func (noData) Error() string   { return "no data" }
func (noData) Timeout() bool   { return true }
func (noData) Temporary() bool { return true }

// stopWaiting makes Read return errNoData from now on. Connections without a file descriptor, as
// in tests, still wait in Read.
func (c *agentConn) stopWaiting() error {
	file, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := file.SyscallConn()
	c.raw = raw
	return err
}

func (c *agentConn) Read(p []byte) (int, error) {
	if c.raw == nil {
		return c.Conn.Read(p)
	}
	var (
		n    int
		fail error
	)
	err := c.raw.Read(func(fd uintptr) bool {
		n, fail = unix.Read(int(fd), p)
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(fail, unix.EAGAIN), errors.Is(fail, unix.EINTR):
		return 0, errNoData
	case fail != nil:
		return 0, os.NewSyscallError("read", fail)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// await waits until there is something to read: data, the end of the connection, or the deadline.
func (c *agentConn) await() error {
	return c.raw.Read(func(fd uintptr) bool {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return ready > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}
