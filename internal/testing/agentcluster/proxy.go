package agentcluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// proxyMark is on the packets that the proxy sends itself.
const proxyMark = 1

// Intercept starts a proxy that accepts every connection with the peer port of an agent, as
// the proxies of a service mesh do: also if no process listens there. It connects to the
// agent only then, and closes the connection if that fails. The returned function lets the
// next connections pass again.
func (t *Cluster) Intercept() (stop func() error, err error) {
	return t.intercept(new(atomic.Int64))
}

// InterceptToDelay is like Intercept. The function delay makes the proxy deliver everything
// later, in both directions.
func (t *Cluster) InterceptToDelay() (delay func(time.Duration), stop func() error, err error) {
	nanos := new(atomic.Int64)
	stop, err = t.intercept(nanos)
	return func(d time.Duration) { nanos.Store(int64(d)) }, stop, err
}

func (t *Cluster) intercept(delay *atomic.Int64) (stop func() error, err error) {
	if !inOwnNetwork() {
		return nil, errSharedNetwork
	}
	listener, err := (&net.ListenConfig{}).Listen(t.ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	context.AfterFunc(t.ctx, func() { _ = listener.Close() })
	go accept(listener, delay)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, err
	}
	table := t.table() + "_proxy"
	err = nft(t.ctx, fmt.Sprintf(`table ip %s {
	chain output {
		type nat hook output priority -100;
		meta mark != %d tcp dport %s redirect to :%s
	}
}
`, table, proxyMark, peerPort, port))
	return func() error { return nft(t.ctx, "delete table ip "+table) }, err
}

func accept(listener net.Listener, delay *atomic.Int64) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		if client, ok := client.(*net.TCPConn); ok {
			go forward(client, delay)
		}
	}
}

// forward connects a client with the address that it dialed.
func forward(client *net.TCPConn, delay *atomic.Int64) {
	defer client.Close()
	address, err := originalDestination(client)
	if err != nil {
		return
	}
	from, _ := client.RemoteAddr().(*net.TCPAddr)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.IP}, Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, proxyMark) })
		if err == nil {
			err = failed
		}
		return err
	}}
	server, err := dialer.Dial("tcp4", address)
	if err != nil {
		return
	}
	defer server.Close()
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		ways.Go(func() {
			copyLate(way[0], way[1], delay)
			_, _ = way[0].Close(), way[1].Close()
		})
	}
	ways.Wait()
}

// copyLate copies a stream until it ends or breaks. Each part arrives after the delay.
func copyLate(to io.Writer, from io.Reader, delay *atomic.Int64) {
	type part struct {
		data []byte
		due  time.Time
	}
	const waiting = 10_000
	parts := make(chan part, waiting)
	go func() {
		defer close(parts)
		for {
			data := make([]byte, 64<<10)
			n, err := from.Read(data)
			if n > 0 {
				parts <- part{data[:n], time.Now().Add(time.Duration(delay.Load()))}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range parts {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
}

// originalDestination returns the address to which a redirected connection was made.
func originalDestination(c *net.TCPConn) (address string, err error) {
	const soOriginalDst = 80 // SO_ORIGINAL_DST in linux/netfilter_ipv4.h
	raw, err := c.SyscallConn()
	if err != nil {
		return "", err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		// The option is a sockaddr_in, which this type of the same size can hold.
		var sockaddr *unix.IPv6Mreq
		if sockaddr, failed = unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, soOriginalDst); failed == nil {
			port, ip := binary.BigEndian.Uint16(sockaddr.Multiaddr[2:]), sockaddr.Multiaddr[4:8]
			address = fmt.Sprintf("%s:%d", net.IP(ip), port)
		}
	})
	if err == nil {
		err = failed
	}
	return address, err
}
