// Package wire is the form in which agents exchange messages: agents.proto,
// read and written by hand. It is pure, and trusts no byte that it reads:
// everything is bounded, and what can't be read is an error, never a panic.
package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/conclave-dev/conclave/internal/election"
)

// Protocol is the version of the protocol that agents speak.
const Protocol = 1

// The bounds of what is read. The largest letter names every member of a list.
const (
	MaxMembers = 1000
	MaxName    = 253
	MaxHello   = 1 << 10
	MaxFrame   = MaxMembers*(MaxName+3) + 1<<10
)

// Frame is what a peer says at once: exactly one of these is set.
type Frame struct {
	Hello   *Hello
	Message *Message
	Goodbye bool
}

// Hello says who speaks.
type Hello struct {
	Protocol uint32
	Domain   string
	Name     string
	Life     uint32
	Port     uint16
	Term     election.Term
}

// Message is a message of an election, with names instead of numbers: each agent
// numbers the members for itself.
type Message struct {
	Group   string
	Kind    election.Kind
	Term    election.Term
	Lamport uint64
	Subject string
	Origin  string
	Hops    uint32
	List    []string
	// Version and Digest are those of the list under which the sender speaks.
	Version uint32
	Digest  uint64
	// ConfigDigest stands for what the members have agreed on besides the list.
	ConfigDigest uint64
	Hold         election.Hold
}

// The numbers of the fields in agents.proto.
const (
	frameHello protowire.Number = iota + 1
	frameLetter
	frameGoodbye
)

const (
	helloProtocol protowire.Number = iota + 1
	helloDomain
	helloName
	helloLife
	helloPort
	helloReading
)

const (
	letterGroup protowire.Number = iota + 1
	letterKind
	letterTerm
	letterLamport
	letterSubject
	letterOrigin
	letterHops
	letterList
	letterVersion
	letterDigest
	letterLife
	letterAsker
	letterSent
	letterBar
	letterHeld
	letterStanding
	letterAdopted
	letterAway
	letterCharter
)

// Append appends f as it goes onto a connection, with its length.
func Append(b []byte, f Frame) []byte {
	var body []byte
	number := frameGoodbye
	switch {
	case f.Hello != nil:
		number, body = frameHello, appendHello(nil, f.Hello)
	case f.Message != nil:
		number, body = frameLetter, appendLetter(make([]byte, 0, 128), f.Message)
	}
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(number)+protowire.SizeBytes(len(body))))
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return protowire.AppendBytes(b, body)
}

func appendHello(b []byte, h *Hello) []byte {
	b = appendNumber(b, helloProtocol, uint64(h.Protocol))
	b = appendText(b, helloDomain, h.Domain)
	b = appendText(b, helloName, h.Name)
	b = appendFixed32(b, helloLife, h.Life)
	b = appendNumber(b, helloPort, uint64(h.Port))
	return appendNumber(b, helloReading, uint64(h.Term))
}

func appendLetter(b []byte, l *Message) []byte {
	b = appendText(b, letterGroup, l.Group)
	b = appendNumber(b, letterKind, uint64(l.Kind))
	b = appendNumber(b, letterTerm, uint64(l.Term))
	b = appendNumber(b, letterLamport, l.Lamport)
	b = appendText(b, letterSubject, l.Subject)
	b = appendText(b, letterOrigin, l.Origin)
	b = appendNumber(b, letterHops, uint64(l.Hops))
	for _, name := range l.List {
		b = protowire.AppendTag(b, letterList, protowire.BytesType)
		b = protowire.AppendString(b, name)
	}
	b = appendNumber(b, letterVersion, uint64(l.Version))
	b = appendFixed64(b, letterDigest, l.Digest)
	b = appendFixed32(b, letterLife, l.Hold.Life)
	b = appendFixed32(b, letterAsker, l.Hold.RequesterLife)
	b = appendNumber(b, letterSent, protowire.EncodeZigZag(int64(l.Hold.Sent)))
	b = appendNumber(b, letterBar, uint64(l.Hold.HighestGranted))
	b = appendNumber(b, letterHeld, protowire.EncodeBool(l.Hold.Held))
	b = appendNumber(b, letterStanding, protowire.EncodeBool(l.Hold.Ready))
	b = appendNumber(b, letterAdopted, uint64(l.Hold.Version))
	b = appendNumber(b, letterAway, protowire.EncodeBool(l.Hold.Ineligible))
	return appendFixed64(b, letterCharter, l.ConfigDigest)
}

// What has its zero value isn't written, as proto3 wants it.

func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func appendFixed32(b []byte, field protowire.Number, n uint32) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendFixed32(protowire.AppendTag(b, field, protowire.Fixed32Type), n)
}

func appendFixed64(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), n)
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}
