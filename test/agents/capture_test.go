package agents

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// capture records the messages that agents without TLS exchange, from the packets of the
// loopback interface. It shares no code with the agents but the parser of frames.
type capture struct {
	socket int
	done   chan struct{}

	mu       sync.Mutex
	streams  map[direction]*stream
	messages []captured
	err      error
}

// captured is a message on the network. at is the kernel's time of its last packet.
type captured struct {
	from, to string
	at       time.Time
	*wire.Message
}

// direction is one half of a TCP connection.
type direction struct{ from, to netip.AddrPort }

func (d direction) reverse() direction { return direction{d.to, d.from} }

// stream is what was sent in one direction.
type stream struct {
	next    uint32 // the number of the next byte
	pending []byte // the beginning of a frame
	sender  string // from its Hello
	// early are messages from before the Hello of the other direction.
	early []captured
}

const (
	captureBuffer = 32 << 20
	maxPacket     = 1 << 16
)

// startCapture begins to record. Start the agents afterwards: connections must be complete.
func startCapture(t *testing.T) *capture {
	t.Helper()
	agentcluster.NeedPartitions(t) // Elsewhere, packets of others may be on the interface, and recording them may not be permitted.
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(networkOrder(unix.ETH_P_IP)))
	must.Succeed(t, err)
	c := &capture{socket: socket, done: make(chan struct{}), streams: map[direction]*stream{}}
	for _, err := range []error{
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUF, captureBuffer),
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
	} {
		must.Succeed(t, err)
	}
	stop := make(chan struct{})
	go c.run(stop)
	t.Cleanup(func() {
		close(stop)
		<-c.done
		unix.Close(socket)
	})
	return c
}

func networkOrder(n uint16) uint16 { return n<<8 | n>>8 }

func (c *capture) run(stop <-chan struct{}) {
	defer close(c.done)
	packet, control := make([]byte, maxPacket), make([]byte, 64)
	for {
		n, controls, _, from, err := unix.Recvmsg(c.socket, packet, control, 0)
		select {
		case <-stop:
			return
		default:
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			c.fail(err)
		case !ok || link.Pkttype == unix.PACKET_OUTGOING: // The loopback interface shows each packet twice.
		default:
			at, err := timeOf(control[:controls])
			c.mu.Lock()
			if err == nil {
				err = c.receive(packet[:n], at)
			}
			c.mu.Unlock()
			c.fail(err)
		}
	}
}

func (c *capture) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.Join(c.err, err)
}

// timeOf returns when the kernel received a packet.
func timeOf(control []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, err
	}
	for _, m := range messages {
		if m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			seconds, nanos := binary.NativeEndian.Uint64(m.Data), binary.NativeEndian.Uint64(m.Data[8:])
			return time.Unix(int64(seconds), int64(nanos)), nil //nolint:gosec // from the kernel
		}
	}
	return time.Time{}, errors.New("a packet has no time")
}

// receive adds an IPv4 packet.
func (c *capture) receive(packet []byte, at time.Time) error {
	const tcp, minIP, minTCP = 6, 20, 20
	if len(packet) < minIP || packet[9] != tcp {
		return nil
	}
	header, length := int(packet[0]&0xf)*4, int(binary.BigEndian.Uint16(packet[2:]))
	if length < header+minTCP || length > len(packet) {
		return errors.New("a packet is incomplete")
	}
	segment := packet[header:length]
	address := func(ip, port []byte) netip.AddrPort {
		a, _ := netip.AddrFromSlice(ip)
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port))
	}
	d := direction{address(packet[12:16], segment[:2]), address(packet[16:20], segment[2:4])}
	const syn = 1 << 1
	number, flags, data := binary.BigEndian.Uint32(segment[4:]), segment[13], segment[int(segment[12]>>4)*4:]
	s := c.streams[d]
	switch {
	case flags&syn != 0:
		c.streams[d] = &stream{next: number + 1}
	case s == nil || len(data) == 0: // not a connection of agents, or an acknowledgement
	case number != s.next && int32(s.next-number) < int32(len(data)): //nolint:gosec // sequence numbers wrap around
		return errors.New("a packet is missing")
	case number != s.next: // repeated
	default:
		s.next += uint32(len(data)) //nolint:gosec // at most maxPacket
		return c.read(d, s, data, at)
	}
	return nil
}

// read adds the frames that a packet completes. Other connections, such as those to the API of
// an agent, don't begin with a Hello, and are ignored.
func (c *capture) read(d direction, s *stream, data []byte, at time.Time) error {
	s.pending = append(s.pending, data...)
	for len(s.pending) > 0 {
		r := bytes.NewReader(s.pending)
		size, err := wire.ReadSize(r, wire.MaxFrame)
		if err != nil || r.Len() < size {
			return nil //nolint:nilerr // The rest of the frame follows.
		}
		body := s.pending[len(s.pending)-r.Len():][:size]
		frame, err := wire.Parse(body)
		if err != nil || s.sender == "" && frame.Hello == nil {
			delete(c.streams, d)
			return nil //nolint:nilerr // It isn't a connection between agents.
		}
		s.pending = s.pending[len(s.pending)-r.Len()+size:]
		other := c.streams[d.reverse()]
		switch {
		case frame.Hello != nil:
			s.sender = frame.Hello.Name
			if other != nil {
				c.complete(other, s.sender)
			}
		case frame.Message != nil:
			s.early = append(s.early, captured{from: s.sender, at: at, Message: frame.Message})
			if other != nil && other.sender != "" {
				c.complete(s, other.sender)
			}
		}
	}
	return nil
}

// complete adds the messages of a stream whose receiver is known now.
func (c *capture) complete(s *stream, receiver string) {
	for _, m := range s.early {
		m.to = receiver
		c.messages = append(c.messages, m)
	}
	s.early = nil
}

// of returns the messages of a group so far.
func (c *capture) of(group string) (messages []captured, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	statistics, err := unix.GetsockoptTpacketStats(c.socket, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && statistics.Drops > 0 {
		err = errors.New("the kernel has dropped packets of the capture")
	}
	for _, m := range c.messages {
		if m.Group == group {
			messages = append(messages, m)
		}
	}
	return messages, errors.Join(c.err, err)
}
