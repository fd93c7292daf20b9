package proxy

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestClientsThatReadNothing: what the kernel stores is bounded by the number of connections, also at its peak.
func TestClientsThatReadNothing(t *testing.T) {
	const connections, kernelMax = 200, connectionMemory - 20<<10 // The rest isn't for buffers.
	w := newWorld(t, limits, unchanged)
	w.serve(loopback, send)
	w.set(coordinator(1, loopback))
	held := func() (sum int) {
		w.proxy.mu.Lock()
		defer w.proxy.mu.Unlock()
		for c := range w.proxy.open {
			sum += heldFor(t, c.client) + heldFor(t, c.server)
		}
		return sum
	}
	most := 0
	for range connections {
		go send(w.dial())
		most = max(most, held())
	}
	testwait.Until(t, "the kernel stores data of all clients", func() bool {
		most = max(most, held())
		return most >= connections*smallBuffer
	})
	for began := time.Now(); time.Since(began) < patience; time.Sleep(retryMax) {
		most = max(most, held())
	}
	expect.AtMostf(t, most, connections*kernelMax+limits.Large*directionMemory, "bytes that the kernel stores")
}

// heldFor returns how many bytes the kernel stores for a socket, which count as memory of the container.
func heldFor(t *testing.T, socket *net.TCPConn) (bytes int) {
	t.Helper()
	raw, err := socket.SyscallConn()
	must.Succeed(t, err)
	_ = raw.Control(func(fd uintptr) { // A closed socket stores nothing.
		info, err := unix.GetsockoptICMPv6Filter(int(fd), unix.SOL_SOCKET, unix.SO_MEMINFO) // It has as many words.
		must.Succeed(t, err)
		locked, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BUF_LOCK)
		must.Equalf(t, locked, unix.SOCK_SNDBUF_LOCK|unix.SOCK_RCVBUF_LOCK, "buffers that the kernel doesn't enlarge")
		for _, word := range []int{
			unix.SK_MEMINFO_RMEM_ALLOC, unix.SK_MEMINFO_FWD_ALLOC, unix.SK_MEMINFO_WMEM_QUEUED, unix.SK_MEMINFO_BACKLOG,
		} {
			bytes += int(int32(info.Data[word])) //nolint:gosec // What is reserved may be negative for a moment.
		}
	})
	return bytes
}

// TestFewDirectionsGetLargeBuffers: those that move many bytes in a second, while there is memory.
func TestFewDirectionsGetLargeBuffers(t *testing.T) {
	few := limits
	few.Large = 2
	w := newWorld(t, few, unchanged)
	w.serve(loopback, echo)
	w.set(coordinator(1, loopback))
	now := time.Now()
	for _, c := range []struct {
		recent int
		began  time.Time
		want   bool
	}{
		{manyBytes - 3, now, false},
		{manyBytes - 1, now.Add(-2 * time.Second), false},
		{manyBytes - 1, now, true},
		{manyBytes - 1, now, true},
		{manyBytes - 1, now, false},
		{manyBytes - 1, now, false},
	} {
		raw, err := w.dial().SyscallConn()
		must.Succeed(t, err)
		d := &direction{conn: &conn{proxy: w.proxy}, from: raw, to: raw, recent: c.recent, second: c.began}
		d.widen(1)
		d.widen(1) // Large ones remain so.
		received, sent, most := 0, 0, smallBuffer
		_ = raw.Control(func(fd uintptr) {
			received, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
			sent, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		})
		if c.want {
			most = pipeSize
		}
		expect.Equalf(t, d.most(), most, "bytes at once: %+v", c)
		expect.Equalf(t, received == 2*receiveBuffer && sent == 2*sendBuffer, c.want, "large buffers: %+v", c)
	}
	expect.Equalf(t, w.shared.large.Load(), 2, "directions with large buffers")
}

// TestLastBytesCount: a connection counts until its client has taken what it got.
func TestLastBytesCount(t *testing.T) {
	const answer = 10 << 10 // The client has a place for less, and the proxy for the rest.
	w := newWorld(t, limits, unchanged)
	w.serve(loopback, func(c *net.TCPConn) { _, _ = c.Write(make([]byte, answer)) })
	w.set(coordinator(1, loopback))
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = setReceiveBuffer(fd, smallBuffer) })
	}}
	end, err := dialer.Dial("tcp", w.Ports[0].Listen)
	must.Succeed(t, err)
	defer end.Close()
	c := end.(*net.TCPConn) //nolint:errcheck,forcetypeassert // Network "tcp" has no other.
	must.Succeed(t, c.CloseWrite())
	testwait.Until(t, "the answer is on its way", func() bool { return w.Stats.ToClients.Load() == answer })
	time.Sleep(4 * retryMax)
	expect.Equalf(t, w.Stats.Connections.Load(), 1, "connections")
	_, err = io.CopyN(io.Discard, c, answer)
	must.Succeed(t, err)
	w.awaitEnded(Completed, 1)
}
