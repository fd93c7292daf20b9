// Package wire encodes and decodes the frames that agents exchange. agents.proto
// defines their format; the code is written by hand.
//
// The package is pure: it has no goroutines and no state. It doesn't trust its input: the length of a frame, of a list
// and of a name are limited, and invalid input results in an error. The caller bounds the time to read a frame.
//
// Not checked here: whether names and groups exist, and whether the sender may use
// them. Packages transport and group do that.
package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/conclave-dev/conclave/internal/election"
)

// Protocol is the version of the protocol. Revision says which frames were added since: with 1, PeerAddress.
const (
	Protocol = 1
	Revision = 1
)

// Limits for received frames. The largest message has the name of every other member of a list, and two separators.
const (
	MaxMembers = 100
	maxList    = MaxMembers + 1
	MaxName    = 253
	MaxHello   = 1 << 10
	MaxFrame   = maxList*(MaxName+3) + 1<<10
)

// Frame is the unit of transmission. Exactly one of its fields is set.
type Frame struct {
	Hello       *Hello
	Message     *Message
	Goodbye     bool
	PeerAddress *PeerAddress
}

// Hello identifies the sender: it is the first frame on a connection.
type Hello struct {
	Protocol uint32
	Domain   string
	Name     string
	// Life is the incarnation of the process.
	Life uint32
	// Port is the port on which the process listens for peers.
	Port uint16
	// Identity is that of the state directory of the process.
	Identity election.Identity
	// Revision is the one of the protocol that the sender understands.
	Revision uint32
	// Dialed is the name of the process that the sender wants to reach, if it has dialed.
	Dialed string
}

// PeerAddress is the address at which the sender is connected with another peer.
type PeerAddress struct{ Name, Address string }

// Message is an election.Message with names instead of identifiers: each agent assigns identifiers of its own.
type Message struct {
	Group   string
	Kind    election.Kind
	Term    election.Term
	Lamport uint64
	Subject string
	Origin  string
	Hops    uint32
	List    []string
	// Version and Digest are those of the sender's member list.
	Version uint32
	Digest  uint64
	// ConfigDigest is the digest of the settings that all members must share, independently of their list.
	ConfigDigest uint64
	// Lease is the sender's lease.
	Lease election.Tick
	// EndCause is, in a RESIGNED, why the sender gives up the office: a control.EndCause. 0 is unknown.
	EndCause uint32
	// Refuses: the sender ignores the messages of the receiver, because it knows another state directory of that.
	Refuses bool
	Hold    election.Hold
}

// The field numbers of agents.proto.
const (
	frameHello protowire.Number = iota + 1
	frameMessage
	frameGoodbye
	framePeerAddress
)

const (
	helloProtocol protowire.Number = iota + 1
	helloDomain
	helloName
	helloLife
	helloPort
	helloIdentity
	helloRevision
	helloDialed
)

const (
	peerAddressName protowire.Number = iota + 1
	peerAddressAddress
)

const (
	messageGroup protowire.Number = iota + 1
	messageKind
	messageTerm
	messageLamport
	messageSubject
	messageOrigin
	messageHops
	messageList
	messageVersion
	messageDigest
	messageLife
	messageRequesterLife
	messageSent
	messageHighestGranted
	messageHeld
	messageReady
	messageAdopted
	messageIneligible
	messageConfigDigest
	messageLease
	messageHeartbeat
	messageSenderLease
	messageSettled
	messageElectionTerm
	messageEndCause
	messageRefuses
	messageAbstains
	messageFlaps
	messageHandsOver
)

// Append appends the encoding of f, preceded by its length.
func Append(b []byte, f Frame) []byte {
	var body []byte
	number := frameGoodbye
	switch {
	case f.Hello != nil:
		number, body = frameHello, appendHello(nil, f.Hello)
	case f.Message != nil:
		number, body = frameMessage, appendMessage(make([]byte, 0, 128), f.Message)
	case f.PeerAddress != nil:
		number, body = framePeerAddress,
			appendText(appendText(nil, peerAddressName, f.PeerAddress.Name), peerAddressAddress, f.PeerAddress.Address)
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
	b = appendFixed64(b, helloIdentity, uint64(h.Identity))
	b = appendNumber(b, helloRevision, uint64(h.Revision))
	return appendText(b, helloDialed, h.Dialed)
}

func appendMessage(b []byte, m *Message) []byte {
	b = appendText(b, messageGroup, m.Group)
	b = appendNumber(b, messageKind, uint64(m.Kind))
	b = appendNumber(b, messageTerm, uint64(m.Term))
	b = appendNumber(b, messageLamport, m.Lamport)
	b = appendText(b, messageSubject, m.Subject)
	b = appendText(b, messageOrigin, m.Origin)
	b = appendNumber(b, messageHops, uint64(m.Hops))
	for _, name := range m.List {
		b = protowire.AppendTag(b, messageList, protowire.BytesType)
		b = protowire.AppendString(b, name)
	}
	b = appendNumber(b, messageVersion, uint64(m.Version))
	b = appendFixed64(b, messageDigest, m.Digest)
	b = appendFixed32(b, messageLife, m.Hold.Life)
	b = appendFixed32(b, messageRequesterLife, m.Hold.RequesterLife)
	b = appendNumber(b, messageSent, protowire.EncodeZigZag(int64(m.Hold.Sent)))
	b = appendNumber(b, messageHighestGranted, uint64(m.Hold.HighestGranted))
	b = appendNumber(b, messageHeld, protowire.EncodeBool(m.Hold.Held))
	b = appendNumber(b, messageReady, protowire.EncodeBool(m.Hold.Ready))
	b = appendNumber(b, messageAdopted, uint64(m.Hold.Version))
	b = appendNumber(b, messageIneligible, protowire.EncodeBool(m.Hold.Ineligible))
	b = appendFixed64(b, messageConfigDigest, m.ConfigDigest)
	b = appendNumber(b, messageLease, uint64(m.Hold.Lease))
	b = appendNumber(b, messageHeartbeat, uint64(m.Hold.Heartbeat))
	b = appendNumber(b, messageSettled, protowire.EncodeBool(m.Hold.Settled))
	b = appendNumber(b, messageElectionTerm, uint64(m.Hold.ElectionTerm))
	b = appendNumber(b, messageSenderLease, uint64(m.Lease))
	b = appendNumber(b, messageEndCause, uint64(m.EndCause))
	b = appendNumber(b, messageRefuses, protowire.EncodeBool(m.Refuses))
	b = appendNumber(b, messageAbstains, protowire.EncodeBool(m.Hold.Abstains))
	b = appendNumber(b, messageFlaps, protowire.EncodeBool(m.Hold.Flaps))
	return appendNumber(b, messageHandsOver, protowire.EncodeBool(m.Hold.HandsOver))
}

// As proto3 requires, zero values aren't encoded.

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
