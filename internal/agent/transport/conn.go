package transport

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
)

const (
	readBuffer = 1 << 10
	queueMax   = 1024
	// rateMax is the number of frames that are read from a peer in a second. A
	// flood stays in the buffers of the kernel and of the sender.
	rateMax = 10000
	// frameSize is that of the largest frame that counts as one in Config.Rate.
	frameSize = 512
)

// conn is a connection with an authenticated peer.
type conn struct {
	transport *Transport
	raw       net.Conn
	stream    net.Conn // raw, or TLS on top of it
	reader    *bufio.Reader

	name     string
	life     uint32
	identity election.Identity
	// revision is the one of the protocol that the peer understands.
	revision uint32
	// members holds the peer's member name in each group; nil allows any.
	members   map[string]string
	uid       string
	witness   bool
	notAfter  time.Time
	createdAt time.Time
	// listenAddress is where the peer's process listens. It is only an assumption until listenAddressVerified is set.
	listenAddress         string
	listenAddressVerified atomic.Bool
	// dialedTarget is the address of the peer that this side had when it dialed, which may
	// be a name; empty if it accepted.
	dialedTarget string
	// goodbyeReceived is set when the peer announces a planned end.
	goodbyeReceived atomic.Bool
	// closedHere: this side has closed the connection, so the process at the other end need not have
	// ended, even if a firewall now refuses a new connection.
	closedHere atomic.Bool
	// ended: the process at the other end is known to have ended. The goroutine of run sets it.
	ended bool

	mu    sync.Mutex
	queue []Outgoing
	// urgent is set if not all frames in queue may wait.
	urgent bool
	closed bool
	// closeAfterWrite is set when the queue has the last frame to send.
	closeAfterWrite bool
	wake            chan struct{}
	done            chan struct{}
}

func newConn(
	t *Transport, raw, stream net.Conn, reader *bufio.Reader, hello *wire.Hello, shown credentials, listenAddress string,
) *conn {
	return &conn{
		transport: t, raw: raw, stream: stream, reader: reader, name: hello.Name, life: hello.Life,
		identity: hello.Identity, revision: hello.Revision, members: shown.members, uid: shown.uid,
		witness: shown.witness != "", notAfter: shown.notAfter, createdAt: time.Now(), listenAddress: listenAddress,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// provesEnd reports whether this connection proves that the process at the other end of an earlier one has ended:
// another incarnation listens at the same address. Its certificate must name it in each group in which that of the
// earlier one did.
func (c *conn) provesEnd(earlier *conn) bool {
	for group, member := range earlier.members {
		if member == earlier.name && c.members[group] != member {
			return false
		}
	}
	return c.life != earlier.life && c.listenAddress == earlier.listenAddress
}

func (c *conn) run() {
	var writer sync.WaitGroup
	writer.Go(c.write)
	if !c.notAfter.IsZero() {
		expiry := time.AfterFunc(closeBefore(time.Until(c.notAfter)), func() {
			c.closedHere.Store(true)
			c.close() // The next connection uses the renewed certificate.
		})
		defer expiry.Stop()
	}
	err := c.read()
	c.checkEnd()
	c.close()
	writer.Wait()
	c.transport.Log.Debug("connection closed", "peer", c.name, "goodbye", c.goodbyeReceived.Load(), "reason", err)
}

// closeBefore returns when to close a connection whose certificate is valid for that long: at a random
// moment in the last eighth. Otherwise, a peer would lose all of its connections at the same moment.
func closeBefore(validity time.Duration) time.Duration {
	return validity - rand.N(max(validity/8, 1))
}

// checkEnd finds out whether the connection ended because the peer's process did. This is what a failover waits for. So
// it comes before all else, such as closing this side. It doesn't dial after a connection that the peer closed at once,
// because peer.run has delays for that.
func (c *conn) checkEnd() {
	if c.isClosed() || !c.listenAddressVerified.Load() || time.Since(c.createdAt) < redialDelay {
		return
	}
	// Otherwise, peer.run dials again, and for longer.
	if c.ended = c.transport.refuses(c.listenAddress, firstCheckTimeout); c.ended {
		c.refuseFrames()
		c.transport.reportEnded(c)
	}
}

// refuseFrames lets send fail from now on.
func (c *conn) refuseFrames() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeAfterWrite = true
}

func (c *conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.done)
	_ = c.raw.Close() // Not the TLS stream: its Close blocks while the peer doesn't read.
}

// send queues a frame. It returns false if the queue is full or closed.
func (c *conn) send(out Outgoing) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.enqueue(out)
}

// sendLast queues a last frame. The connection is closed when it is written.
func (c *conn) sendLast(out Outgoing) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.enqueue(out)
	c.closeAfterWrite = true
	return sent
}

func (c *conn) enqueue(out Outgoing) bool {
	if c.closed || c.closeAfterWrite || len(c.queue) >= queueMax {
		return false
	}
	c.queue = append(c.queue, out)
	c.urgent = c.urgent || !out.MayWait
	signal(c.wake)
	return true
}

// signal wakes the reader of a channel with a buffer of one, without blocking.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // A signal is pending already.
	}
}

// write writes the queued frames, all of them in one call.
func (c *conn) write() {
	var batch []Outgoing
	var buffer []byte
	for {
		select {
		case <-c.wake:
		case <-c.done:
			c.failQueued(nil)
			return
		}
		c.mu.Lock()
		if !c.urgent {
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		}
		batch, c.queue, c.urgent = c.queue, batch[:0], false
		closeAfterWrite := c.closeAfterWrite
		c.mu.Unlock()
		buffer = buffer[:0]
		for i := range batch {
			buffer = append(buffer, batch[i].Frame...)
		}
		if _, err := c.stream.Write(buffer); err != nil {
			c.close()
			c.failQueued(batch)
			return
		}
		clear(batch)
		if closeAfterWrite {
			c.close()
		}
	}
}

func (c *conn) failQueued(batch []Outgoing) {
	c.mu.Lock()
	batch = append(batch, c.queue...)
	c.queue = nil
	c.mu.Unlock()
	fail(batch)
}

func fail(frames []Outgoing) {
	for _, out := range frames {
		if out.OnFailure != nil {
			out.OnFailure()
		}
	}
}

// read passes the messages that arrive to Events.
func (c *conn) read() error {
	var body []byte
	own := rate.NewLimiter(rateMax, rateMax/10)
	for {
		size, err := c.readSize()
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
			c.goodbyeReceived.Store(true)
		case frame.PeerAddress != nil:
			c.transport.receiveHint(c.name, frame.PeerAddress)
		case frame.Message == nil:
			return errors.New("unexpected second Hello")
		case c.members != nil && c.members[frame.Message.Group] != c.name:
			// The peer's configuration may name a group before its certificate does. The
			// next connection uses the certificate that the peer has by then.
			c.transport.reportUnauthorized(c.name, frame.Message.Group)
			if c.transport.renewals.isDue(c.name, time.Since(c.createdAt)) {
				return errors.New("certificate doesn't name the group; reconnecting in case it was renewed")
			}
		default:
			c.transport.Events.ReceiveMessage(Sender{c.name, c.identity}, frame.Message)
		}
		if !c.wait(own, 1) || c.transport.Rate != nil && !c.wait(c.transport.Rate, 1+size/frameSize) {
			return net.ErrClosed
		}
	}
}

// readSize waits for the next frame without a timeout, and reads its length. From
// the first byte on, the frame has to arrive within FrameTimeout.
func (c *conn) readSize() (int, error) {
	if c.reader.Buffered() == 0 {
		if err := c.stream.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
		if _, err := c.reader.Peek(1); err != nil {
			return 0, err
		}
	}
	size, err := wire.ReadSize(sizeReader{c}, wire.MaxFrame)
	if err == nil && c.reader.Buffered() < size {
		err = c.stream.SetReadDeadline(time.Now().Add(c.transport.FrameTimeout))
	}
	return size, err
}

// sizeReader reads the bytes of a length, with FrameTimeout for each that isn't buffered.
type sizeReader struct{ c *conn }

func (r sizeReader) ReadByte() (byte, error) {
	if r.c.reader.Buffered() == 0 {
		if err := r.c.stream.SetReadDeadline(time.Now().Add(r.c.transport.FrameTimeout)); err != nil {
			return 0, err
		}
	}
	return r.c.reader.ReadByte()
}

// wait blocks while there is more than the limiter permits. It returns false if the connection is closed first.
func (c *conn) wait(limiter *rate.Limiter, cost int) bool {
	const turn = 10 * time.Millisecond // Shorter waits would cost more than what they limit.
	delay := limiter.ReserveN(time.Now(), cost).Delay()
	if delay < turn {
		return true
	}
	select {
	case <-time.After(delay):
		return true
	case <-c.done:
		return false
	}
}
