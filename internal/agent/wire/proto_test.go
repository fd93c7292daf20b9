package wire

import (
	"bytes"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestEncodingMatchesProto compares the encoding with that of a library that reads
// agents.proto, in both directions.
func TestEncodingMatchesProto(t *testing.T) {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{}}
	files, err := compiler.Compile(t.Context(), "agents.proto")
	must.Succeed(t, err)
	frame := files[0].Messages().ByName("Frame")
	for _, c := range []struct {
		frame Frame
		text  string
	}{
		{Frame{Message: &full}, `message {
			group: "ledger" kind: 5 term: 27993601 lamport: 1099511627776 subject: "e" origin: "b" hops: 7
			list: "a" list: "" list: "c" version: 3 digest: 18364758544493064720
			life: 3735928559 requester_life: 16909060 sent: -5 highest_granted: 17592186044415 held: true ready: true adopted: 2 ineligible: true config_digest: 5 lease: 200000000 heartbeat: 40000000 sender_lease: 500000000 ceiling: 27993605 election_term: 27993606 end_cause: 9 }`},
		{
			Frame{Hello: &Hello{Protocol: 1, Domain: "default", Name: "a", Life: 9, Port: 7401, Term: 3, Revision: 1, Dialed: "b"}},
			`hello { protocol: 1 domain: "default" name: "a" life: 9 port: 7401 term: 3 revision: 1 dialed: "b" }`,
		},
		{Frame{PeerAddress: &PeerAddress{Name: "b", Address: "10.0.0.7:7373"}}, `peer_address { name: "b" address: "10.0.0.7:7373" }`},
		{Frame{Goodbye: true}, `goodbye {}`},
	} {
		want := dynamicpb.NewMessage(frame)
		must.Succeed(t, prototext.Unmarshal([]byte(c.text), want))
		got := dynamicpb.NewMessage(frame)
		if err := proto.Unmarshal(body(t, c.frame), got); err != nil || !proto.Equal(got, want) {
			t.Errorf("got %v, %v\nwant %v", prototext.Format(got), err, prototext.Format(want))
		}
		if unknown := unknownIn(got); len(unknown) > 0 {
			t.Errorf("got fields that agents.proto doesn't have: %x", unknown)
		}
		written, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
		must.Succeed(t, err)
		read, err := Parse(written)
		if err != nil || !bytes.Equal(body(t, read), body(t, c.frame)) {
			t.Errorf("got %+v, %v", read, err)
		}
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
