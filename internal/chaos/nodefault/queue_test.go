//go:build linux

package nodefault

import (
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// echo is a connection to a process that sends datagrams back. Both are in a network of their own.
type echo struct {
	t       *testing.T
	network string
	conn    net.PacketConn
	server  net.Addr
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	e := &echo{t: t, network: network(t)}
	if output, err := exec.Command("nsenter", "--net="+e.network, "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	server := e.listen("127.0.0.2:0")
	e.conn, e.server = e.listen("127.0.0.1:0"), server.LocalAddr()
	go func() {
		buffer := make([]byte, 1)
		for {
			_, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(buffer, from)
		}
	}()
	return e
}

func (e *echo) listen(address string) (conn net.PacketConn) {
	e.t.Helper()
	err := inNetwork(e.network, func() (err error) {
		conn, err = (&net.ListenConfig{}).ListenPacket(e.t.Context(), "udp", address)
		return err
	})
	must.Succeed(e.t, err)
	e.t.Cleanup(func() { conn.Close() })
	return conn
}

func (e *echo) send(value byte) {
	e.t.Helper()
	if _, err := e.conn.WriteTo([]byte{value}, e.server); err != nil {
		e.t.Fatal(err)
	}
}

func (e *echo) receive() byte {
	e.t.Helper()
	buffer := make([]byte, 1)
	must.Succeed(e.t, e.conn.SetReadDeadline(time.Now().Add(time.Minute)))
	if _, _, err := e.conn.ReadFrom(buffer); err != nil {
		e.t.Fatal(err)
	}
	return buffer[0]
}

// delay delays packets from and to the server.
func (e *echo) delay(time time.Duration) (undo func() error) {
	e.t.Helper()
	undo, err := delayPackets(e.network, &Request{Addresses: []string{"127.0.0.2"}, Delay: time})
	must.Succeed(e.t, err)
	return undo
}

func TestPacketsAreDelayedInBothDirections(t *testing.T) {
	e := newEcho(t)
	const delay = 50 * time.Millisecond
	undo := e.delay(delay)
	began := time.Now()
	const count = 100
	for i := range byte(count) {
		e.send(i)
	}
	for i := range byte(count) {
		if got := e.receive(); got != i {
			t.Fatalf("got datagram %d, want %d: all of them in their order", got, i)
		}
		if took := time.Since(began); took < 2*delay {
			t.Fatalf("got the answer after %s, want it after %s or more", took, 2*delay)
		}
	}
	if err := undo(); err != nil {
		t.Error(err)
	}
	if got := tables(t, e.network); got != "" {
		t.Errorf("got rules\n%s\nwant none after the fault", got)
	}
}

// At the end of the fault, no packet is lost.
func TestPacketsThatWaitAreDeliveredAtTheEnd(t *testing.T) {
	e := newEcho(t)
	undo := e.delay(time.Hour)
	const count = 100
	for i := range byte(count) {
		e.send(i)
	}
	must.Succeed(t, undo())
	for i := range byte(count) {
		if got := e.receive(); got != i {
			t.Fatalf("got datagram %d, want %d", got, i)
		}
	}
}

// If the process that delays packets is killed, they pass, although the rule is still there.
func TestPacketsPassWithoutTheQueue(t *testing.T) {
	e := newEcho(t)
	wait, err := queueRule()
	must.Succeed(t, err)
	table, err := addTableFor(e.network, []string{"127.0.0.2"}, wait)
	must.Succeed(t, err)
	e.send(7)
	if got := e.receive(); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
	if err := table.Close(); err != nil {
		t.Error(err)
	}
}

func TestOneQueueInANetwork(t *testing.T) {
	e := newEcho(t)
	undo := e.delay(time.Hour)
	defer undo() //nolint:errcheck // the network ends with the test
	if _, err := openQueue(e.network, 0); err == nil || err.Error() != "another process has queue 49228: operation not permitted" {
		t.Errorf("got %v, want that another process has the queue", err)
	}
}

func TestMalformedMessagesHaveNoPackets(t *testing.T) {
	b := &batch{}
	b.message(queuePacket, 0, attribute(9, []byte{1}), attribute(packetHeader, bigEndian(7), []byte{8, 0, 1}))
	if got := packetIDs(b.bytes); len(got) != 1 || got[0] != 7 {
		t.Fatalf("got %v, want packet 7", got)
	}
	for size := range b.bytes {
		if got := packetIDs(b.bytes[:size]); len(got) != 0 {
			t.Errorf("got %v from %d bytes, want none", got, size)
		}
	}
	for _, size := range []byte{0, 1, 255} {
		b.bytes[nfHeaderSize] = size // that of the first attribute
		if got := packetIDs(b.bytes); len(got) != 0 {
			t.Errorf("got %v with an attribute of size %d, want none", got, size)
		}
	}
}
