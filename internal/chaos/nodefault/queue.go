//go:build linux

package nodefault

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// queueNumber is the number of our queue in a network namespace. Programs that use queues begin at 0.
const queueNumber = 0xC04C

// The messages, attributes and values of nfnetlink_queue, which package unix lacks.
const (
	queuePacket       = unix.NFNL_SUBSYS_QUEUE << 8
	queueVerdict      = unix.NFNL_SUBSYS_QUEUE<<8 | 1
	queueConfig       = unix.NFNL_SUBSYS_QUEUE<<8 | 2
	queueVerdictBatch = unix.NFNL_SUBSYS_QUEUE<<8 | 3

	packetHeader  = 1
	verdictHeader = 2

	configCommand   = 1
	configParams    = 2
	configMaxLength = 3
	configMask      = 4
	configFlags     = 5

	commandBind  = 1
	copyMetadata = 1 // The packets themselves remain in the kernel.
	flagFailOpen = 1 // Packets pass if the queue is full.
	flagGSO      = 4 // Large packets aren't segmented.

	verdictAccept = 1
	// nlaTypeMask is the part of the kind of an attribute without flags.
	nlaTypeMask = 1<<14 - 1
	// maxQueueLength is the number of packets that wait at the same time.
	maxQueueLength = 1 << 16
)

// queue receives packets from the kernel, which wait until it accepts them. If the process ends, the kernel drops those.
type queue struct {
	socket io.ReadWriteCloser
	delay  time.Duration
	// waiting are packets in the order of their arrival.
	waiting chan packet
	// last is the ID of the latest packet. The kernel counts them.
	last   atomic.Uint32
	closed chan struct{}
	work   sync.WaitGroup
}

type packet struct {
	id  uint32
	due time.Time
}

// openQueue opens the queue of a network namespace. It delays packets from now on.
func openQueue(network string, delay time.Duration) (*queue, error) {
	socket, err := openSocket(network)
	if err != nil {
		return nil, err
	}
	if err := configureQueue(socket); err != nil {
		return nil, errors.Join(err, unix.Close(socket))
	}
	if err := unix.SetNonblock(socket, true); err != nil {
		return nil, errors.Join(err, unix.Close(socket))
	}
	q := &queue{socket: os.NewFile(uintptr(socket), "nfnetlink_queue"), delay: delay, waiting: make(chan packet, maxQueueLength), closed: make(chan struct{})}
	q.work.Go(q.receive)
	q.work.Go(q.release)
	return q, nil
}

// Close accepts all packets that wait. No rule may lead packets to the queue any more, but its chains must still be there: when they
// are removed, the kernel drops all packets that wait.
func (q *queue) Close() error {
	// IDs are compared by their distance, so this includes packets that receive hasn't read yet.
	err := q.verdict(queueVerdictBatch, q.last.Load()+1<<30)
	close(q.closed)
	err = errors.Join(err, q.socket.Close())
	q.work.Wait()
	return err
}

// configureQueue binds the socket to the queue.
func configureQueue(socket int) error {
	// There may be a thousand messages at once. Without the permission, the default must do.
	_ = unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	for _, attributes := range [][][]byte{
		{attribute(configCommand, []byte{commandBind, 0, 0, 0})},
		{attribute(configParams, append(bigEndian(0), copyMetadata))},
		{number(configMaxLength, maxQueueLength), number(configMask, flagFailOpen|flagGSO), number(configFlags, flagFailOpen|flagGSO)},
	} {
		b := &batch{}
		b.message(queueConfig, 0, attributes...)
		b.setQueue()
		b.acknowledgeLast()
		err := send(socket, b.bytes)
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("another process has queue %d: %w", queueNumber, err)
		}
		if err != nil {
			return fmt.Errorf("the kernel has no nfnetlink_queue: %w", err)
		}
	}
	return nil
}

// receive reads messages about packets until the socket is closed.
func (q *queue) receive() {
	defer close(q.waiting)
	buffer := make([]byte, 1<<16)
	for {
		n, err := q.socket.Read(buffer)
		if errors.Is(err, unix.ENOBUFS) { // Too many messages at once: the kernel lets those packets pass.
			continue
		}
		if err != nil {
			return
		}
		now := time.Now()
		for _, id := range packetIDs(buffer[:n]) {
			q.last.Store(id)
			select {
			case q.waiting <- packet{id, now.Add(q.delay)}:
			case <-q.closed:
				return
			}
		}
	}
}

// release accepts each packet when it is due.
func (q *queue) release() {
	for p := range q.waiting {
		select {
		case <-time.After(time.Until(p.due)):
		case <-q.closed:
			return
		}
		_ = q.verdict(queueVerdict, p.id) // If it fails, the packet is lost, as others may be.
	}
}

// verdict accepts the packet, or with queueVerdictBatch all up to this one.
func (q *queue) verdict(kind uint16, id uint32) error {
	b := &batch{}
	b.message(kind, 0, attribute(verdictHeader, bigEndian(verdictAccept), bigEndian(id)))
	b.setQueue()
	_, err := q.socket.Write(b.bytes)
	return err
}

// packetIDs returns the IDs of packets in messages from the kernel.
func packetIDs(messages []byte) (ids []uint32) {
	for len(messages) >= nfHeaderSize {
		size := int(binary.NativeEndian.Uint32(messages))
		if size < nfHeaderSize || size > len(messages) {
			return ids
		}
		if binary.NativeEndian.Uint16(messages[4:]) == queuePacket {
			if header := findAttribute(messages[nfHeaderSize:size], packetHeader); len(header) >= 4 {
				ids = append(ids, binary.BigEndian.Uint32(header))
			}
		}
		messages = messages[min(align(size), len(messages)):]
	}
	return ids
}

// nfHeaderSize is the size of the headers of netlink and nfnetlink.
const nfHeaderSize = unix.SizeofNlMsghdr + 4

// findAttribute returns the value of the first attribute of a kind, or nil.
func findAttribute(attributes []byte, kind uint16) []byte {
	for len(attributes) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(attributes))
		if size < unix.SizeofNlAttr || size > len(attributes) {
			return nil
		}
		if binary.NativeEndian.Uint16(attributes[2:])&nlaTypeMask == kind {
			return attributes[unix.SizeofNlAttr:size]
		}
		attributes = attributes[min(align(size), len(attributes)):]
	}
	return nil
}

// align returns the size of a message or an attribute with its padding.
func align(size int) int { return (size + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
