package transport

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/wire"
)

const (
	readBuffer = 4 << 10
	// queueMax bounds how many parcels wait for a peer that is slow.
	queueMax = 1024
	// rateMax is how many frames of a peer are read in a second; a flood waits in
	// the kernel's buffers, and in those of whoever sends it.
	rateMax = 10000
)

// conn is a connection with a peer that has proved who it is.
type conn struct {
	mesh   *Transport
	raw    net.Conn
	stream net.Conn // raw, or TLS on top of it
	reader *bufio.Reader

	name string
	life uint32
	// members are the names under which the peer may speak, by group; nil: any.
	members map[string]string
	// until is when its certificate expires, zero: never.
	until time.Time
	began time.Time
	// place is the address at which the peer's process listens, if placed.
	place  string
	placed atomic.Bool
	// dialled is the address to which this side made the connection.
	dialled string
	// left: the peer has said goodbye.
	left atomic.Bool

	mu     sync.Mutex
	queue  []Outgoing
	closed bool
	// ending: what is queued is the last that this side has to say.
	ending bool
	wake   chan struct{}
	done   chan struct{}
}

func newConn(
	m *Transport, raw, stream net.Conn, reader *bufio.Reader, hello *wire.Hello, shown credentials, place string,
) *conn {
	return &conn{
		mesh: m, raw: raw, stream: stream, reader: reader, name: hello.Name, life: hello.Life,
		members: shown.members, until: shown.until, began: time.Now(), place: place,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// tellsOf reports whether this connection shows that the process at the other end
// of an earlier one has ended: another life is at its place, and may say so.
func (c *conn) tellsOf(earlier *conn) bool {
	for group, member := range earlier.members {
		if member == earlier.name && c.members[group] != member {
			return false
		}
	}
	return c.life != earlier.life && c.place == earlier.place
}

// run reads and writes until the connection ends.
func (c *conn) run() {
	var writer sync.WaitGroup
	writer.Go(c.write)
	if !c.until.IsZero() {
		expiry := time.AfterFunc(time.Until(c.until), c.close) // A renewed one is shown by the next connection.
		defer expiry.Stop()
	}
	err := c.read()
	c.close()
	writer.Wait()
	c.mesh.Log.Debug("a connection has ended", "peer", c.name, "goodbye", c.left.Load(), "reason", err)
}

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.done)
	_ = c.raw.Close() // Not the TLS stream: that would wait for a peer that doesn't read.
}

// send queues a parcel, unless too many wait already.
func (c *conn) send(parcel Outgoing) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.push(parcel)
}

// finish queues a last parcel; the connection ends when it is sent.
func (c *conn) finish(parcel Outgoing) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.push(parcel)
	c.ending = true
	return sent
}

func (c *conn) push(parcel Outgoing) bool {
	if c.closed || c.ending || len(c.queue) >= queueMax {
		return false
	}
	c.queue = append(c.queue, parcel)
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return true
}

// write sends what is queued, as much of it at once as there is.
func (c *conn) write() {
	var batch []Outgoing
	var buffer []byte
	for {
		select {
		case <-c.wake:
		case <-c.done:
			c.giveBack(nil)
			return
		}
		c.mu.Lock()
		batch, c.queue = c.queue, batch[:0]
		ending := c.ending
		c.mu.Unlock()
		buffer = buffer[:0]
		for i := range batch {
			buffer = append(buffer, batch[i].Frame...)
		}
		if _, err := c.stream.Write(buffer); err != nil {
			c.close()
			c.giveBack(batch)
			return
		}
		clear(batch)
		if ending {
			c.close()
		}
	}
}

// giveBack returns what was not sent.
func (c *conn) giveBack(batch []Outgoing) {
	c.mu.Lock()
	batch = append(batch, c.queue...)
	c.queue = nil
	c.mu.Unlock()
	giveBack(batch)
}

func giveBack(parcels []Outgoing) {
	for _, parcel := range parcels {
		if parcel.OnFailure != nil {
			parcel.OnFailure()
		}
	}
}

// read hands on what arrives.
func (c *conn) read() error {
	var body []byte
	pace := pace{}
	for {
		size, err := c.size()
		if err != nil {
			return err
		}
		if cap(body) < size {
			body = make([]byte, size)
		}
		body = body[:size]
		if _, err := io.ReadFull(c.reader, body); err != nil {
			return err
		}
		frame, err := wire.Parse(body)
		if err != nil {
			return err
		}
		switch {
		case frame.Goodbye:
			c.left.Store(true)
		case frame.Message == nil:
			return errors.New("a second Hello")
		case c.members != nil && c.members[frame.Message.Group] != c.name:
			// A file may name a group before the certificate does. The next connection
			// shows the certificate that the peer has by then; one a minute is little
			// for the groups that share it, should that be no better.
			c.mesh.stray(c.name, frame.Message.Group)
			if time.Since(c.began) > c.mesh.UnauthorizedGrace {
				return errors.New("its certificate may name more groups by now")
			}
		default:
			c.mesh.Events.ReceiveMessage(c.name, frame.Message)
		}
		if !pace.keep(c.done) {
			return net.ErrClosed
		}
	}
}

// size waits for a frame as long as it takes, but for the rest of one that has
// begun only a while.
func (c *conn) size() (int, error) {
	if c.reader.Buffered() == 0 {
		if err := c.stream.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
		if _, err := c.reader.Peek(1); err != nil {
			return 0, err
		}
	}
	size, err := wire.ReadSize(bounded{c}, wire.MaxFrame)
	if err == nil && c.reader.Buffered() < size {
		err = c.stream.SetReadDeadline(time.Now().Add(c.mesh.FrameTimeout))
	}
	return size, err
}

// bounded reads the bytes of a length, which should all be there.
type bounded struct{ c *conn }

func (b bounded) ReadByte() (byte, error) {
	if b.c.reader.Buffered() == 0 {
		if err := b.c.stream.SetReadDeadline(time.Now().Add(b.c.mesh.FrameTimeout)); err != nil {
			return 0, err
		}
	}
	return b.c.reader.ReadByte()
}

// pace slows a reader down to rateMax.
type pace struct {
	since time.Time
	count int
}

func (p *pace) keep(done <-chan struct{}) bool {
	if p.count++; p.count < rateMax/10 {
		return true
	}
	now := time.Now()
	wait := time.Second/10 - now.Sub(p.since)
	p.since, p.count = now, 0
	if wait <= 0 {
		return true
	}
	select {
	case <-time.After(wait):
		p.since = p.since.Add(wait)
		return true
	case <-done:
		return false
	}
}
