package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a connection of a client.
type conn struct {
	proxy          *Proxy
	client, server *net.TCPConn // server is nil while the client waits
	to             *tenure
	giveUp         time.Time
	why            atomic.Uint32 // the first Reason of abort, or Completed
	done           atomic.Int32  // how many of its goroutines have ended
}

func newConn(p *Proxy, client *net.TCPConn) *conn {
	p.Stats.Waiting.Add(1)
	p.Stats.Connections.Add(1)
	p.shared.connections.Add(1)
	lock(client)
	return &conn{proxy: p, client: client, giveUp: time.Now().Add(p.Wait)}
}

// tooMany reports whether there are too many connections, with this one. While the coordinator is known, others have to
// wait only until they are connected.
func (c *conn) tooMany() bool {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shared.connections.Load() > int64(p.shared.limits.Connections) ||
		p.Stats.Connections.Load() > int64(p.shared.limits.GroupConnections) ||
		p.Stats.Waiting.Load() > int64(p.shared.limits.Waiting) && !p.now.reachable()
}

// close closes the sockets. Both ends get an error, unless both have closed the connection.
func (c *conn) close(why Reason) {
	stats := c.proxy.Stats
	for _, socket := range []*net.TCPConn{c.client, c.server} {
		if socket == nil {
			stats.Waiting.Add(-1)
			continue
		}
		if why != Completed {
			_ = socket.SetLinger(0)
		}
		_ = socket.Close() // Nothing is buffered in this process.
	}
	c.proxy.shared.connections.Add(-1)
	stats.Connections.Add(-1)
	stats.Ended[why].Add(1)
}

var past = time.Unix(1, 0)

// abort makes the goroutines of an open connection end, and the last one reset it.
func (c *conn) abort(why Reason) {
	if c.why.CompareAndSwap(uint32(Completed), uint32(why)) {
		_, _ = c.client.SetDeadline(past), c.server.SetDeadline(past)
	}
}

func (c *conn) aborted() bool { return Reason(c.why.Load()) != Completed }

// move moves bytes in one direction until it ends.
func (c *conn) move(from, to *net.TCPConn, moved *atomic.Uint64) {
	d, err := newDirection(c, from, to)
	for err == nil {
		err = d.move(moved)
	}
	if d.large {
		defer c.proxy.shared.large.Add(-1)
	}
	switch {
	case errors.Is(err, errTooSlow):
		c.abort(TooSlow)
	case !errors.Is(err, io.EOF) || to.CloseWrite() != nil:
		c.abort(Broken)
	}
	p := c.proxy
	if c.done.Add(1) == 2 {
		c.awaitSent()
		p.mu.Lock()
		delete(p.open, c)
		p.mu.Unlock()
		p.shared.turns.take(func() { c.close(Reason(c.why.Load())) })
	}
}

// awaitSent waits for clients that read nothing: after close, the kernel would store bytes for them, without a limit.
func (c *conn) awaitSent() {
	for end := time.Now().Add(lastRead); !c.aborted() && unsent(c.client); time.Sleep(pause) {
		if time.Now().After(end) {
			c.abort(TooSlow)
		}
	}
}

// direction moves bytes from a socket to another one. The kernel moves them only from or to a pipe.
type direction struct {
	conn     *conn
	from, to syscall.RawConn
	socket   *net.TCPConn // of to
	// awaits, fills and drains are functions for the kernel, and the others are their results.
	awaits, drains func(uintptr) bool
	fills          func(uintptr)
	pipe           pipe
	count          int // bytes in the pipe
	err            error
	// large is set if the direction has large buffers. recent is how many bytes it has moved since a second began.
	large  bool
	recent int
	second time.Time
}

const (
	// patience is how long an end may take nothing while others wait for a pipe.
	patience = time.Second
	// lastRead is how long a client may take for the last bytes, after both ends have closed the connection.
	lastRead = 30 * time.Second
)

var errTooSlow = errors.New("an end takes no bytes, as too many others")

func newDirection(c *conn, from, to *net.TCPConn) (*direction, error) {
	d := &direction{conn: c, socket: to}
	turns, peeked := &c.proxy.shared.turns, make([]byte, 1)
	d.awaits = func(fd uintptr) bool {
		var n int
		n, _, d.err = unix.Recvfrom(int(fd), peeked, unix.MSG_PEEK)
		if d.err == nil && n == 0 {
			d.err = io.EOF
		}
		return !errors.Is(d.err, unix.EAGAIN)
	}
	d.fills = func(fd uintptr) {
		turns.take(func() { d.count, d.err = splice(int(fd), d.pipe.write, d.most()) })
		if errors.Is(d.err, unix.EAGAIN) {
			d.err = nil
		}
	}
	d.drains = func(fd uintptr) bool {
		var n int
		if !d.large && !writable(fd) {
			return false
		}
		turns.take(func() { n, d.err = splice(d.pipe.read, int(fd), d.count) })
		d.count -= n
		return !errors.Is(d.err, unix.EAGAIN)
	}
	var failed error
	d.from, d.err = from.SyscallConn()
	d.to, failed = to.SyscallConn()
	return d, errors.Join(d.err, failed)
}

// move waits for bytes, and moves what has arrived. After abort, what the application sent while it led still arrives.
func (d *direction) move(moved *atomic.Uint64) error {
	err := d.from.Read(d.awaits)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		d.err = nil
	} else if err = errors.Join(err, d.err); err != nil {
		return err
	}
	shared := d.conn.proxy.shared
	d.pipe, d.err = shared.pipe()
	if d.err == nil {
		err = errors.Join(err, d.from.Control(d.fills))
	}
	n := d.count
	err = errors.Join(err, d.err, d.drain())
	moved.Add(uint64(n - d.count)) //nolint:gosec // not negative
	d.widen(n - d.count)
	if d.count > 0 {
		d.pipe.close()
		d.pipe, d.count = pipe{}, 0
	}
	shared.pipes <- d.pipe
	return err
}

// drain moves what is in the pipe. A reader may pause, while there are enough pipes.
func (d *direction) drain() error {
	for d.count > 0 {
		_ = d.socket.SetWriteDeadline(time.Now().Add(patience)) // It only fails after Close.
		if d.conn.aborted() {                                   // Its deadline may be gone.
			return errors.Join(d.to.Control(func(fd uintptr) { d.drains(fd) }), os.ErrDeadlineExceeded)
		}
		before := d.count
		err := d.to.Write(d.drains)
		switch late := errors.Is(err, os.ErrDeadlineExceeded); {
		case late && d.count == before && d.conn.proxy.shared.pipeWanted():
			return errTooSlow
		case !late && errors.Join(err, d.err) != nil:
			return errors.Join(err, d.err)
		}
	}
	return nil
}
