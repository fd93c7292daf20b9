package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// errRejected replaces ECONNREFUSED if an ICMP message caused it, or may have. A machine without a listener
// answers with a reset. An ICMP message is what firewalls send, such as the REJECT of iptables, and
// shows nothing about the process behind them.
var errRejected = errors.New("a firewall or a router may have rejected the connection by ICMP")

// refusal finds out why a dial was refused: the kernel reports ECONNREFUSED for both reasons, but
// queues the ICMP messages of a socket. Linux does that for connection attempts since version 5.8.
type refusal struct {
	mu sync.Mutex
	// unknown: a sandbox that isn't Linux doesn't have the option, so any refusal may be an ICMP message.
	unknown bool
	// sockets are copies of the dial's descriptors, because a failed dial closes its own ones. A
	// name with several addresses has several.
	sockets []watchedSocket
}

type watchedSocket struct{ descriptor, level, option int }

// watch is called for each socket of a dial before it connects.
func (r *refusal) watch(_ context.Context, network, address string, raw syscall.RawConn) error {
	socket := watchedSocket{level: unix.SOL_IP, option: unix.IP_RECVERR}
	if network == "tcp6" {
		socket.level, socket.option = unix.SOL_IPV6, unix.IPV6_RECVERR
	}
	var unsupported, failed error
	err := raw.Control(func(fd uintptr) {
		if unsupported = unix.SetsockoptInt(int(fd), socket.level, socket.option, 1); unsupported == nil {
			socket.descriptor, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if unsupported != nil {
		r.unknown = true
	} else {
		r.sockets = append(r.sockets, socket)
	}
	return setOptions(network, address, raw)
}

// explain returns the error of the dial, or errRejected. It ends the watch: an ICMP message must not
// break an established connection.
func (r *refusal) explain(dialed error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rejected := r.unknown
	for _, s := range r.sockets {
		if dialed == nil {
			dialed = unix.SetsockoptInt(s.descriptor, s.level, s.option, 0)
		} else {
			rejected = rejected || hasICMP(s.descriptor)
		}
		_ = unix.Close(s.descriptor) // It is a copy.
	}
	r.sockets = nil
	if rejected && errors.Is(dialed, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: %s", errRejected, dialed) //nolint:errorlint // It must not count as ECONNREFUSED.
	}
	return dialed
}

// hasICMP reports whether an ICMP message has arrived for a socket that couldn't connect. The
// kernel queues nothing else for it.
func hasICMP(descriptor int) bool {
	_, _, _, _, err := unix.Recvmsg(descriptor, nil, make([]byte, 128), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	return err == nil
}

// dialTCP dials from the address on which this agent listens, so that peers and
// firewalls see only one address of it.
func (t *Transport) dialTCP(ctx context.Context, address string) (net.Conn, error) {
	var refusal refusal
	dialer := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive, ControlContext: refusal.watch}
	if own, ok := t.Listener.Addr().(*net.TCPAddr); ok && !own.IP.IsUnspecified() {
		dialer.LocalAddr = &net.TCPAddr{IP: own.IP, Zone: own.Zone}
	}
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err := refusal.explain(err); err != nil {
		if c != nil {
			_ = c.Close()
		}
		return nil, err
	}
	return withRawIO(c), nil
}
