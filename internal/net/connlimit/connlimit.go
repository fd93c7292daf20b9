// Package connlimit bounds what the clients of a listener can take from this process:
// connections, bytes and time, for each host and in total.
//
// The owner of a connection can pin it, for example because its client is authenticated. Unpinned connections compete:
// at a limit, the listener closes the one that is most likely useless. So a client that needs only milliseconds to
// authenticate succeeds while others hold as many connections as they can.
package connlimit

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pace is the minimum time between two connections while the listener closes others to
// accept them. Otherwise, it could close them faster than any client can authenticate. It
// also bounds the CPU time that handshakes take from the elections.
const pace = 2 * time.Millisecond

// Limits are the limits of a Listener. A limit of 0 doesn't apply.
type Limits struct {
	// Unpinned and UnpinnedPerHost limit the number of unpinned connections.
	Unpinned, UnpinnedPerHost int
	// Pinned limits the number of pinned connections.
	Pinned int
	// Bytes limits the bytes that are read from an unpinned connection, and TotalBytes those
	// from all unpinned connections.
	Bytes, TotalBytes int
	// Lifetime limits how long a connection may be unpinned.
	Lifetime time.Duration
	// Buffer is the size of the kernel's buffers for each direction of a connection.
	Buffer int
}

// Listener is a listener whose connections are limited.
type Listener struct {
	net.Listener

	limits Limits

	mu sync.Mutex
	// unpinned has the unpinned connections, those that were used last at the end.
	unpinned []*Conn
	bytes    int
	pinned   int
	closed   bool
}

// New limits the connections of a listener.
func New(inner net.Listener, limits Limits) *Listener {
	if socket, ok := inner.(syscall.Conn); ok && limits.Buffer > 0 {
		setBuffers(socket, limits.Buffer)
	}
	return &Listener{Listener: inner, limits: limits}
}

// setBuffers sets the size of the buffers of connections that the kernel accepts. If that
// fails, they have the default size.
func setBuffers(socket syscall.Conn, size int) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, size)
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, size)
	})
}

// Accept returns the next connection, a *Conn. It is unpinned.
func (l *Listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: inner, listener: l, host: hostOf(inner.RemoteAddr())}
	if full := l.add(c); full {
		time.Sleep(pace)
	}
	return c, nil
}

// add adds a connection. It reports whether it closed another one for that.
func (l *Listener) add(c *Conn) (full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Conn.Close() // The caller learns that from its first Read.
		return false
	}
	full = l.evictOldest(c.host)
	l.unpinned = append(l.unpinned, c)
	if l.limits.Lifetime > 0 {
		c.lifetime = time.AfterFunc(l.limits.Lifetime, c.expire)
	}
	return full
}

// CloseUnpinned closes the unpinned connections, and all that are accepted later.
func (l *Listener) CloseUnpinned() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for len(l.unpinned) > 0 {
		l.evict(l.unpinned[0])
	}
}

// Host returns the host of a client, by whose connections and bytes it is limited. A host
// has a whole network of IPv6 addresses.
func Host(client netip.Addr) netip.Prefix {
	ip, bits := client.Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.Prefix(bits) // These numbers of bits are valid.
	return prefix
}

// hostOf returns the host of an address. All other clients, such as those of a Unix socket, count as one host.
func hostOf(address net.Addr) netip.Prefix {
	if tcp, ok := address.(*net.TCPAddr); ok {
		return Host(tcp.AddrPort().Addr())
	}
	return netip.Prefix{}
}

// evictOldest closes the oldest unpinned connection of a host if that host has too many. If
// there are too many in total, it closes the oldest one of the host that has most. It
// reports whether it closed one. The caller holds the lock.
func (l *Listener) evictOldest(host netip.Prefix) bool {
	count := map[netip.Prefix]int{}
	for _, c := range l.unpinned {
		count[c.host]++
	}
	switch {
	case l.limits.UnpinnedPerHost > 0 && count[host] >= l.limits.UnpinnedPerHost:
	case l.limits.Unpinned > 0 && len(l.unpinned) >= l.limits.Unpinned:
		host = slices.MaxFunc(l.unpinned, func(a, b *Conn) int { return cmp.Compare(count[a.host], count[b.host]) }).host
	default:
		return false
	}
	l.evict(l.unpinned[slices.IndexFunc(l.unpinned, func(c *Conn) bool { return c.host == host })])
	return true
}

// evict closes an unpinned connection. The caller holds the lock.
func (l *Listener) evict(c *Conn) {
	l.remove(c)
	_ = c.Conn.Close() // Its owner gets an error from Read or Write.
}

// remove removes an unpinned connection. The caller holds the lock.
func (l *Listener) remove(c *Conn) {
	i := slices.Index(l.unpinned, c)
	if i < 0 {
		return
	}
	l.unpinned = slices.Delete(l.unpinned, i, i+1)
	l.bytes -= c.read
	if c.lifetime != nil {
		c.lifetime.Stop()
	}
}

// errTooMuch is the error of a client that sends much before it is authenticated.
var errTooMuch = errors.New("the client sent too many bytes before it was authenticated")

func (l *Listener) count(c *Conn, n int) error {
	if l.limits.Bytes == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.wasPinned || !slices.Contains(l.unpinned, c) {
		return nil
	}
	c.read += n
	l.bytes += n
	if c.read > l.limits.Bytes {
		l.evict(c)
		return errTooMuch
	}
	if l.limits.TotalBytes > 0 && l.bytes > l.limits.TotalBytes {
		l.evict(slices.MaxFunc(l.unpinned, func(a, b *Conn) int { return cmp.Compare(a.read, b.read) }))
	}
	return nil
}

// Conn is a connection that a Listener has accepted.
type Conn struct {
	net.Conn

	listener *Listener
	host     netip.Prefix
	lifetime *time.Timer
	// isPinned is also read without the listener's lock.
	isPinned atomic.Bool
	// read is the number of bytes that were read before the connection was first pinned.
	read      int
	wasPinned bool
}

// NetConn returns the connection without limits. Use it only for its socket options.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Read reads from the connection. It fails when a limit is exceeded.
func (c *Conn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n > 0 && !c.isPinned.Load() {
		if err := c.listener.count(c, n); err != nil {
			return 0, err
		}
	}
	return n, err
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.isPinned.Swap(false) {
		c.listener.pinned--
	}
	c.listener.remove(c)
	return c.Conn.Close()
}

// Pin exempts the connection from the limits for unpinned connections. It returns false if the connection is closed, or
// if there are too many pinned connections. It may be called again.
func (c *Conn) Pin() bool {
	if c == nil {
		return true
	}
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.isPinned.Load():
		return true
	case !slices.Contains(l.unpinned, c), l.limits.Pinned > 0 && l.pinned >= l.limits.Pinned:
		return false
	}
	l.remove(c)
	l.pinned++
	c.isPinned.Store(true)
	c.wasPinned = true
	return true
}

// Unpin makes the connection compete with other unpinned ones again, as the one that was used
// last. Its bytes and its lifetime remain unlimited.
func (c *Conn) Unpin() {
	if c == nil {
		return
	}
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.isPinned.Swap(false) {
		return
	}
	l.pinned--
	c.read = 0 // These bytes no longer count for the total.
	l.evictOldest(c.host)
	l.unpinned = append(l.unpinned, c)
}

// Use marks an unpinned connection as the one that was used last.
func (c *Conn) Use() {
	if c == nil {
		return
	}
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.unpinned, c); i >= 0 {
		l.unpinned = append(slices.Delete(l.unpinned, i, i+1), c)
	}
}

func (c *Conn) expire() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if slices.Contains(c.listener.unpinned, c) {
		c.listener.evict(c)
	}
}

type connKey struct{}

// WithConn is for the ConnContext of a server. It lets OfRequest find the connection of a request.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		if inner, ok := secured.NetConn().(*Conn); ok {
			conn = inner
		}
	}
	if limited, ok := conn.(*Conn); ok {
		return context.WithValue(ctx, connKey{}, limited)
	}
	return ctx
}

// OfContext returns the connection that WithConn has added, nil if there is none. A nil Conn has no limits.
func OfContext(ctx context.Context) *Conn {
	conn, _ := ctx.Value(connKey{}).(*Conn)
	return conn
}

// OfRequest returns the connection of a request, nil in a test without a server.
func OfRequest(r *http.Request) *Conn { return OfContext(r.Context()) }
