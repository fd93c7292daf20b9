package proxy

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// An agent whose container runs out of memory is killed, and its memory includes what the kernel stores for ends that
// don't read. So each socket has small buffers, and a limited number of directions that move many bytes get large ones,
// until their connection ends: a window that was offered can't be taken back. Larger ones aren't faster.
const (
	smallBuffer = 4 << 10
	// The sizes of large buffers, for what is received and sent. The kernel doubles all sizes.
	receiveBuffer, sendBuffer = 96 << 10, 64 << 10
	// manyBytes in a second make a direction get large buffers.
	manyBytes = 64 << 10
	// connectionMemory is what a connection with small buffers needs at most: those, two sockets, and two goroutines.
	connectionMemory = 64 << 10
	// directionMemory is what a direction with large buffers needs at most.
	directionMemory = 384 << 10
)

func setReceiveBuffer(fd uintptr, size int) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, size)
}

func setSendBuffer(fd uintptr, size int) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, size)
}

// lock keeps the kernel from enlarging the buffer of a new socket for what is received.
func lock(socket *net.TCPConn) { _ = socket.SetReadBuffer(smallBuffer) } // It only fails after Close.

// writable reports whether a socket stores little to send. If it doesn't, the kernel tells when it does. Otherwise it
// would fill up a packet of 64 KiB, which is more than a small buffer.
func writable(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0) //nolint:gosec // a small number
	return n > 0 || err != nil
}

// unsent reports whether a socket stores bytes that its peer has no place for.
func unsent(socket *net.TCPConn) bool {
	n := 0
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD) })
	}
	return n > 0
}

// most is how many bytes the direction moves at once.
func (d *direction) most() int {
	if d.large {
		return pipeSize
	}
	return smallBuffer
}

// widen enlarges the buffers of a direction that moves many bytes, if there is memory.
func (d *direction) widen(moved int) {
	if d.large {
		return
	}
	if now := time.Now(); now.Sub(d.second) > time.Second {
		d.second, d.recent = now, 0
	}
	shared := d.conn.proxy.shared
	if d.recent += moved; d.recent < manyBytes {
		return
	} else if shared.large.Add(1) > int64(shared.limits.Large) {
		shared.large.Add(-1)
		return
	}
	d.large = true
	_ = d.from.Control(func(fd uintptr) {
		_ = setReceiveBuffer(fd, receiveBuffer)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, receiveBuffer)
	})
	_ = d.to.Control(func(fd uintptr) { _ = setSendBuffer(fd, sendBuffer) })
}
