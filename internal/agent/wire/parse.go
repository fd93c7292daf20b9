package wire

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/conclave-dev/conclave/internal/election"
)

// ReadSize reads the length of the next frame. It must not exceed limit.
func ReadSize(r io.ByteReader, limit int) (int, error) {
	size := uint64(0)
	for shift := 0; shift < 28; shift += 7 {
		c, err := r.ReadByte()
		if err != nil {
			if errors.Is(err, io.EOF) && shift > 0 {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		size |= uint64(c&0x7f) << shift
		if c < 0x80 {
			if size > uint64(limit) {
				return 0, fmt.Errorf("frame must have at most %d bytes, got %d", limit, size)
			}
			return int(size), nil
		}
	}
	return 0, fmt.Errorf("frame must have at most %d bytes", limit)
}

// Parse decodes a frame, without its length.
func Parse(b []byte) (Frame, error) {
	var f Frame
	contents := 0
	err := eachField(b, func(v value) error {
		var err error
		switch v.field {
		case frameHello:
			f.Hello, err = parseHello(v)
		case frameMessage:
			f.Message, err = parseMessage(v)
		case frameGoodbye:
			f.Goodbye = true
			_, err = v.bytes()
		case framePeerAddress:
			f.PeerAddress, err = parsePeerAddress(v)
		default:
			return nil
		}
		contents++
		return err
	})
	if err == nil && contents != 1 {
		err = fmt.Errorf("frame must have one content, got %d", contents)
	}
	return f, err
}

func parseHello(v value) (*Hello, error) {
	b, err := v.bytes()
	if err != nil {
		return nil, err
	}
	h := &Hello{}
	err = eachField(b, func(v value) (err error) {
		switch v.field {
		case helloProtocol:
			h.Protocol, err = v.number32()
		case helloDomain:
			h.Domain, err = v.text()
		case helloName:
			h.Name, err = v.text()
		case helloLife:
			h.Life, err = v.fixed32()
		case helloPort:
			var port uint32
			if port, err = v.number32(); err == nil && port > 1<<16-1 {
				err = fmt.Errorf("port must be at most 65535, got %d", port)
			}
			h.Port = uint16(port)
		case helloIdentity:
			var identity uint64
			identity, err = v.fixed64()
			h.Identity = election.Identity(identity)
		case helloRevision:
			h.Revision, err = v.number32()
		case helloDialed:
			h.Dialed, err = v.text()
		default: // a field of a later version
		}
		return err
	})
	return h, err
}

func parsePeerAddress(v value) (*PeerAddress, error) {
	b, err := v.bytes()
	if err != nil {
		return nil, err
	}
	a := &PeerAddress{}
	err = eachField(b, func(v value) (err error) {
		switch v.field {
		case peerAddressName:
			a.Name, err = v.text()
		case peerAddressAddress:
			a.Address, err = v.text()
		default: // a field of a later version
		}
		return err
	})
	return a, err
}

func parseMessage(v value) (*Message, error) {
	b, err := v.bytes()
	if err != nil {
		return nil, err
	}
	m := &Message{}
	if err := eachField(b, m.setField); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Message) setField(v value) (err error) {
	switch v.field {
	case messageGroup:
		m.Group, err = v.text()
	case messageKind:
		m.Kind, err = v.electionKind()
	case messageTerm:
		var term uint64
		term, err = v.number()
		m.Term = election.Term(term)
	case messageLamport:
		m.Lamport, err = v.number()
	case messageSubject:
		m.Subject, err = v.text()
	case messageOrigin:
		m.Origin, err = v.text()
	case messageHops:
		m.Hops, err = v.number32()
	case messageList:
		var name string
		if name, err = v.text(); err == nil && len(m.List) >= maxList {
			err = fmt.Errorf("list must have at most %d names", maxList)
		}
		m.List = append(m.List, name)
	case messageVersion:
		m.Version, err = v.number32()
	case messageDigest:
		m.Digest, err = v.fixed64()
	case messageConfigDigest:
		m.ConfigDigest, err = v.fixed64()
	case messageSenderLease:
		var lease uint64
		lease, err = v.number()
		m.Lease = election.Tick(lease)
	case messageEndCause:
		m.EndCause, err = v.number32()
	case messageRefuses:
		m.Refuses, err = v.flag()
	default:
		err = m.setHoldField(v)
	}
	return err
}

func (v value) electionKind() (election.Kind, error) {
	kind, err := v.number32()
	if err == nil && kind > 1<<8-1 {
		err = fmt.Errorf("kind of message must be at most 255, got %d", kind)
	}
	return election.Kind(kind), err
}

func (m *Message) setHoldField(v value) (err error) {
	h := &m.Hold
	var n uint64
	switch v.field {
	case messageLife:
		h.Life, err = v.fixed32()
	case messageRequesterLife:
		h.RequesterLife, err = v.fixed32()
	case messageSent:
		n, err = v.number()
		h.Sent = election.Tick(protowire.DecodeZigZag(n))
	case messageHighestGranted:
		n, err = v.number()
		h.HighestGranted = election.Term(n)
	case messageHeld:
		h.Held, err = v.flag()
	case messageReady:
		h.Ready, err = v.flag()
	case messageAdopted:
		h.Version, err = v.number32()
	case messageIneligible:
		h.Ineligible, err = v.flag()
	case messageAbstains:
		h.Abstains, err = v.flag()
	case messageFlaps:
		h.Flaps, err = v.flag()
	case messageHandsOver:
		h.HandsOver, err = v.flag()
	case messageLease:
		n, err = v.number()
		h.Lease = election.Tick(n)
	case messageHeartbeat:
		n, err = v.number()
		h.Heartbeat = election.Tick(n)
	case messageSettled:
		h.Settled, err = v.flag()
	case messageElectionTerm:
		n, err = v.number()
		h.ElectionTerm = election.Term(n)
	default: // a field of a later version
	}
	return err
}

// value is an encoded field. Its accessors check the type.
type value struct {
	field protowire.Number
	kind  protowire.Type
	raw   []byte
}

var errType = errors.New("field has an unexpected type")

// eachField calls visit for each field of an encoded message.
func eachField(b []byte, visit func(value) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(field, kind, b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := visit(value{field, kind, b[:size]}); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

func (v value) number() (uint64, error) {
	if v.kind != protowire.VarintType {
		return 0, errType
	}
	n, _ := protowire.ConsumeVarint(v.raw)
	return n, nil
}

func (v value) flag() (bool, error) {
	n, err := v.number()
	return n != 0, err
}

func (v value) number32() (uint32, error) {
	n, err := v.number()
	if err == nil && n > 1<<32-1 {
		err = fmt.Errorf("number must have at most 32 bits, got %d", n)
	}
	return uint32(n), err
}

func (v value) fixed32() (uint32, error) {
	if v.kind != protowire.Fixed32Type {
		return 0, errType
	}
	n, _ := protowire.ConsumeFixed32(v.raw)
	return n, nil
}

func (v value) fixed64() (uint64, error) {
	if v.kind != protowire.Fixed64Type {
		return 0, errType
	}
	n, _ := protowire.ConsumeFixed64(v.raw)
	return n, nil
}

func (v value) bytes() ([]byte, error) {
	if v.kind != protowire.BytesType {
		return nil, errType
	}
	b, _ := protowire.ConsumeBytes(v.raw)
	return b, nil
}

// text returns a name.
func (v value) text() (string, error) {
	b, err := v.bytes()
	switch {
	case err != nil:
		return "", err
	case len(b) > MaxName:
		return "", fmt.Errorf("name must have at most %d bytes, got %d", MaxName, len(b))
	case !utf8.Valid(b):
		return "", errors.New("name must be UTF-8")
	}
	return string(b), nil
}
