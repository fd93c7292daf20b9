package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errRejected replaces ECONNREFUSED if an ICMP message caused it, or may have. A machine without a listener
// answers with a reset. An ICMP message is what firewalls send, such as the REJECT of iptables, and
// shows nothing about the process behind them.
var errRejected = errors.New("a firewall or a router may have rejected the connection by ICMP")

// refusal finds out why a dial was refused: the kernel reports ECONNREFUSED for both reasons, but
// queues the ICMP messages of a socket. Linux does that for connection attempts since version 5.8.
type refusal struct {
	// unknown: a sandbox that isn't Linux doesn't have the option, so any refusal may be an ICMP message.
	unknown bool
	// descriptor is a copy of the dial's descriptor, because a failed dial closes its own one; 0 for none.
	descriptor, level, option int
}

// watch is called for the socket of a dial before it connects.
func (r *refusal) watch(_ context.Context, network, address string, raw syscall.RawConn) error {
	r.level, r.option = unix.SOL_IP, unix.IP_RECVERR
	if network == "tcp6" {
		r.level, r.option = unix.SOL_IPV6, unix.IPV6_RECVERR
	}
	var unsupported, failed error
	err := raw.Control(func(fd uintptr) {
		if unsupported = unix.SetsockoptInt(int(fd), r.level, r.option, 1); unsupported == nil {
			r.descriptor, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 1)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		r.descriptor = 0
		return err
	}
	r.unknown = unsupported != nil
	return setOptions(network, address, raw)
}

// explain returns the error of the dial, or errRejected. It ends the watch: an ICMP message must not
// break an established connection.
func (r *refusal) explain(dialed error) error {
	rejected := r.unknown
	if r.descriptor > 0 {
		if dialed == nil {
			dialed = unix.SetsockoptInt(r.descriptor, r.level, r.option, 0)
		} else {
			rejected = rejected || hasICMP(r.descriptor)
		}
		_ = unix.Close(r.descriptor) // It is a copy.
		r.descriptor = 0
	}
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

// dialTCP dials the addresses of a peer, one after the other, until one answers.
func (t *Transport) dialTCP(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ips, err := t.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	ips = ips[:min(len(ips), addressesMax)]
	for _, ip := range ips {
		var c net.Conn
		if c, err = t.dialIP(ctx, net.JoinHostPort(ip.Unmap().String(), port),
			dialTimeout/time.Duration(len(ips))); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// refuses dials an IP address, and reports whether a machine without a listener has refused that. All survivors of a
// process wait for this at the same time, so it needs fewer system calls than net.Dialer, and no goroutine.
func (t *Transport) refuses(address string, timeout time.Duration) bool {
	target, err := netip.ParseAddrPort(address)
	if err != nil || target.Addr().Zone() != "" {
		return false
	}
	ip := target.Addr().Unmap()
	domain, level, option := unix.AF_INET, unix.SOL_IP, unix.IP_RECVERR
	if ip.Is6() {
		domain, level, option = unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_RECVERR
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	closeSocket := func() error { return unix.Close(fd) }
	defer func() { _ = closeSocket() }()
	err = unix.SetsockoptInt(fd, level, option, 1)
	if own, ok := t.Listener.Addr().(*net.TCPAddr); ok && !own.IP.IsUnspecified() && err == nil { // As in dialIP.
		err = unix.Bind(fd, socketAddress(own.AddrPort().Addr(), 0))
	}
	if err != nil {
		return false
	}
	connect := func() error { return unix.Connect(fd, socketAddress(ip, target.Port())) }
	if err = connect(); errors.Is(err, unix.EINPROGRESS) {
		err = connect() // It returns the result, which this machine knows already.
	}
	if errors.Is(err, unix.EALREADY) { // Another machine needs longer.
		file := os.NewFile(uintptr(fd), "socket")
		closeSocket = file.Close
		if raw, failed := file.SyscallConn(); failed == nil && file.SetWriteDeadline(time.Now().Add(timeout)) == nil {
			_ = raw.Write(func(uintptr) bool { // A timeout leaves EALREADY.
				err = connect()
				return !errors.Is(err, unix.EALREADY)
			})
		}
	}
	return errors.Is(err, unix.ECONNREFUSED) && !hasICMP(fd)
}

func socketAddress(ip netip.Addr, port uint16) unix.Sockaddr {
	if ip = ip.Unmap(); ip.Is4() {
		return &unix.SockaddrInet4{Addr: ip.As4(), Port: int(port)}
	}
	return &unix.SockaddrInet6{Addr: ip.As16(), Port: int(port)}
}

const addressesMax = 4

// dialIP dials from the address on which this agent listens, so that peers and firewalls see only one address of it.
func (t *Transport) dialIP(ctx context.Context, address string, timeout time.Duration) (net.Conn, error) {
	var refusal refusal
	dialer := net.Dialer{Timeout: timeout, KeepAliveConfig: keepAlive, ControlContext: refusal.watch}
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
