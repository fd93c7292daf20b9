// Package frames compares the frames between agents with a library that reads their definition, agents.proto.
package frames

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const source = "../../../internal/agent/wire/"

// contents are what both must read in the frames of testdata/frames. TestFramesKeepTheirFormat of package wire has that
// of a message.
var contents = map[string]struct {
	text  string
	frame wire.Frame
}{
	"message": {text: `message {
		group: "ledger" kind: 5 term: 27993601 lamport: 1099511627776 subject: "e" origin: "b" hops: 7
		list: "a" list: "" list: "c" version: 3 digest: 18364758544493064720
		life: 3735928559 requester_life: 16909060 sent: -5 highest_granted: 70368744177663 held: true ready: true
		adopted: 2 ineligible: true config_digest: 5 lease: 200000000 heartbeat: 40000000 sender_lease: 500000000
		settled: true election_term: 27993606 end_cause: 9 refuses: true abstains: true flaps: true
		hands_over: true }`},
	"hello": {
		`hello {
			protocol: 1 domain: "default" name: "a" life: 9 port: 65535 identity: 34359738368 revision: 1
			dialed: "127.0.0.1:7373" }`,
		wire.Frame{Hello: &wire.Hello{
			Protocol: 1, Domain: "default", Name: "a", Life: 9, Port: 65535, Identity: 34359738368, Revision: 1,
			Dialed: "127.0.0.1:7373",
		}},
	},
	"peer address": {
		`peer_address { name: "b" address: "[fd00::7]:7373" }`,
		wire.Frame{PeerAddress: &wire.PeerAddress{Name: "b", Address: "[fd00::7]:7373"}},
	},
	"goodbye": {`goodbye {}`, wire.Frame{Goodbye: true}},
}

// TestFramesMatchProto compares the frames in both directions.
func TestFramesMatchProto(t *testing.T) {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{source}}}
	files, err := compiler.Compile(t.Context(), "agents.proto")
	must.Succeed(t, err)
	frame := files[0].Messages().ByName("Frame")
	for line := range strings.Lines(string(must.ReadFile(t, source+"testdata/frames"))) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		name := line[:at]
		c, ok := contents[name]
		if !ok {
			continue
		}
		delete(contents, name)
		raw, err := hex.DecodeString(strings.TrimSpace(line[at:]))
		must.Succeed(t, err)
		want, got := dynamicpb.NewMessage(frame), dynamicpb.NewMessage(frame)
		must.Succeed(t, prototext.Unmarshal([]byte(c.text), want))
		_, size := binary.Uvarint(raw)
		if err := proto.Unmarshal(raw[size:], got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: got %v, %v\nwant %v", name, prototext.Format(got), err, prototext.Format(want))
		}
		if unknown := unknownIn(got); len(unknown) > 0 {
			t.Errorf("%s: got fields that agents.proto doesn't have: %x", name, unknown)
		}
		written, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
		must.Succeed(t, err)
		read, err := wire.Parse(written)
		same := read.Message != nil || reflect.DeepEqual(read, c.frame)
		if err != nil || !same || !bytes.Equal(wire.Append(nil, read), raw) {
			t.Errorf("%s: got %+v, %v", name, read, err)
		}
	}
	if len(contents) > 0 {
		t.Errorf("got no frames with the names of %v", contents)
	}
}

func unknownIn(m protoreflect.Message) []byte {
	unknown := m.GetUnknown()
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if field.Message() != nil && !field.IsList() {
			unknown = append(unknown, unknownIn(v.Message())...)
		}
		return true
	})
	return unknown
}
