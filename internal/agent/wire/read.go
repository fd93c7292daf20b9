package wire

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/conclave-dev/conclave/internal/election"
)

// ReadSize reads the length of the next frame, which must not exceed limit.
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
				return 0, fmt.Errorf("a frame of %d bytes is longer than %d", size, limit)
			}
			return int(size), nil
		}
	}
	return 0, fmt.Errorf("a frame is longer than %d bytes", limit)
}

// Parse reads a frame, without its length.
func Parse(b []byte) (Frame, error) {
	var f Frame
	contents := 0
	err := eachField(b, func(v value) error {
		var err error
		switch v.field {
		case frameHello:
			f.Hello, err = parseHello(v)
		case frameLetter:
			f.Message, err = parseLetter(v)
		case frameGoodbye:
			f.Goodbye = true
			_, err = v.bytes()
		default:
			return nil
		}
		contents++
		return err
	})
	if err == nil && contents != 1 {
		err = fmt.Errorf("a frame has %d contents instead of one", contents)
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
				err = fmt.Errorf("%d is not a port", port)
			}
			h.Port = uint16(port)
		case helloReading:
			var reading uint64
			reading, err = v.number()
			h.Term = election.Term(reading)
		default: // of a later version
		}
		return err
	})
	return h, err
}

func parseLetter(v value) (*Message, error) {
	b, err := v.bytes()
	if err != nil {
		return nil, err
	}
	l := &Message{}
	if err := eachField(b, l.take); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Message) take(v value) (err error) {
	switch v.field {
	case letterGroup:
		l.Group, err = v.text()
	case letterKind:
		var kind uint32
		if kind, err = v.number32(); err == nil && kind > 1<<8-1 {
			err = fmt.Errorf("a kind of message is %d", kind)
		}
		l.Kind = election.Kind(kind)
	case letterTerm:
		var term uint64
		term, err = v.number()
		l.Term = election.Term(term)
	case letterLamport:
		l.Lamport, err = v.number()
	case letterSubject:
		l.Subject, err = v.text()
	case letterOrigin:
		l.Origin, err = v.text()
	case letterHops:
		l.Hops, err = v.number32()
	case letterList:
		var name string
		if name, err = v.text(); err == nil && len(l.List) >= MaxMembers {
			err = fmt.Errorf("a list of more than %d names", MaxMembers)
		}
		l.List = append(l.List, name)
	case letterVersion:
		l.Version, err = v.number32()
	case letterDigest:
		l.Digest, err = v.fixed64()
	case letterCharter:
		l.ConfigDigest, err = v.fixed64()
	default:
		err = l.takeHold(v)
	}
	return err
}

func (l *Message) takeHold(v value) (err error) {
	h := &l.Hold
	var n uint64
	switch v.field {
	case letterLife:
		h.Life, err = v.fixed32()
	case letterAsker:
		h.RequesterLife, err = v.fixed32()
	case letterSent:
		n, err = v.number()
		h.Sent = election.Tick(protowire.DecodeZigZag(n))
	case letterBar:
		n, err = v.number()
		h.HighestGranted = election.Term(n)
	case letterHeld:
		n, err = v.number()
		h.Held = n != 0
	case letterStanding:
		n, err = v.number()
		h.Ready = n != 0
	case letterAdopted:
		h.Version, err = v.number32()
	case letterAway:
		n, err = v.number()
		h.Ineligible = n != 0
	default: // of a later version
	}
	return err
}

// value is a field as it was found: of what type is for the reader to ask.
type value struct {
	field protowire.Number
	kind  protowire.Type
	raw   []byte
}

var errType = errors.New("a field is of another type than it should be")

// eachField visits the fields of a message.
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

func (v value) number32() (uint32, error) {
	n, err := v.number()
	if err == nil && n > 1<<32-1 {
		err = fmt.Errorf("%d is too large for its field", n)
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

// text is a name.
func (v value) text() (string, error) {
	b, err := v.bytes()
	switch {
	case err != nil:
		return "", err
	case len(b) > MaxName:
		return "", fmt.Errorf("a name of %d bytes is longer than %d", len(b), MaxName)
	case !utf8.Valid(b):
		return "", errors.New("a name is not UTF-8")
	}
	return string(b), nil
}
