package wire

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"io"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// full has a value in each field.
var full = Message{
	Group: "ledger", Kind: election.Table, Term: 27993601, Lamport: 1 << 40, Subject: "e", Origin: "b", Hops: 7,
	List: []string{"a", "", "c"}, Version: 3, Digest: 0xfedcba9876543210, ConfigDigest: 5, Lease: 500_000_000, EndCause: 9,
	Refuses: true,
	Hold: election.Hold{
		Sent: -5, Life: 0xdeadbeef, RequesterLife: 0x01020304, Version: 2, HighestGranted: election.MaxTerm,
		Held: true, Ready: true, Ineligible: true,
		Lease: 200_000_000, Heartbeat: 40_000_000, Settled: true, Abstains: true, HandsOver: true, Flaps: true,
		ElectionTerm: 27993606,
	},
}

func body(t *testing.T, f Frame) []byte {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(Append(nil, f)))
	size, err := ReadSize(r, MaxFrame)
	must.Succeed(t, err)
	b, err := io.ReadAll(r)
	if err != nil || len(b) != size {
		t.Fatalf("got %d bytes after a size of %d: %v", len(b), size, err)
	}
	return b
}

func TestFramesRoundTrip(t *testing.T) {
	for i := range reflect.TypeFor[Message]().NumField() {
		if reflect.ValueOf(full).Field(i).IsZero() {
			t.Fatalf("full has no %s", reflect.TypeFor[Message]().Field(i).Name)
		}
	}
	for i := range reflect.TypeFor[election.Hold]().NumField() {
		if reflect.ValueOf(full.Hold).Field(i).IsZero() {
			t.Fatalf("full has no Hold.%s", reflect.TypeFor[election.Hold]().Field(i).Name)
		}
	}
	for name, f := range map[string]Frame{
		"full":  {Message: &full},
		"empty": {Message: &Message{}},
		"hello": {Hello: &Hello{
			Protocol: 1, Domain: "default", Name: "a", Life: 9, Port: 65535, Identity: 1 << 63, Revision: 1, Dialed: "b",
		}},
		"goodbye": {Goodbye: true},
		"address": {PeerAddress: &PeerAddress{Name: "b", Address: "[fd00::7]:7373"}},
	} {
		got, err := Parse(body(t, f))
		if err != nil || !reflect.DeepEqual(got, f) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, f)
		}
	}
}

func TestLongestMessageFits(t *testing.T) {
	name := strings.Repeat("n", MaxName)
	message := Message{Group: name, Subject: name, Origin: name}
	for range maxList {
		message.List = append(message.List, name)
	}
	expect.AtMostf(t, len(body(t, Frame{Message: &message})), MaxFrame, "bytes")
	message.List = append(message.List, name)
	if _, err := Parse(body(t, Frame{Message: &Message{List: message.List}})); err == nil {
		t.Error("parsed a list of too many names, want an error")
	}
}

func TestParseRejectsInvalidBytes(t *testing.T) {
	for name, b := range map[string]string{
		"nothing":             "",
		"two contents":        "\x1a\x00\x1a\x00",
		"a truncated content": "\x12\x05abc",
		"a wrong type":        "\x08\x01",
		"a field of type 7":   "\x12\x01\x0f",
		"a name that isn't":   "\x12\x03\x0a\x01\xff",
		"a port too high":     "\x0a\x04\x28\x80\x80\x04",
		"a kind too high":     "\x12\x03\x10\x80\x02",
		"a long name":         "\x12\x81\x02\x0a\xfe\x01" + strings.Repeat("n", 254),
		"a group":             "\x12\x02\x0b\x0c",
	} {
		if f, err := Parse([]byte(b)); err == nil {
			t.Errorf("%s: got %+v, want an error", name, f)
		}
	}
	if f, err := Parse([]byte("\x12\x06\x0a\x01g\xa0\x06\x01")); err != nil || f.Message.Group != "g" {
		t.Errorf("with a field of a later version: got %+v, %v", f, err)
	}
}

func TestReadSize(t *testing.T) {
	for name, c := range map[string]struct {
		bytes string
		size  int
		err   string
	}{
		"short":     {"\x05", 5, ""},
		"two bytes": {"\x80\x01", 128, ""},
		"too long":  {"\x81\x08", 0, "at most 1024 bytes"},
		"endless":   {strings.Repeat("\x80", 100), 0, "at most 1024 bytes"},
		"cut off":   {"\x80", 0, "unexpected EOF"},
		"nothing":   {"", 0, "EOF"},
	} {
		size, err := ReadSize(strings.NewReader(c.bytes), 1024)
		if size != c.size || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %d, %v, want %d, %q", name, size, err, c.size, c.err)
		}
	}
}

// FuzzParse: Parse never panics, and a parsed frame survives a round trip.
func FuzzParse(f *testing.F) {
	f.Add(Append(nil, Frame{Message: &full})[1:])
	f.Add(Append(nil, Frame{Hello: &Hello{Name: "a", Port: 1}})[1:])
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(body(t, frame))
		if err != nil || !reflect.DeepEqual(again, frame) {
			t.Errorf("got %+v, %v, want %+v", again, err, frame)
		}
	})
}

// TestFramesKeepTheirFormat decodes the frames of testdata/frames. Encoded again, they must be
// the same bytes: then agents of several versions understand each other. When a release adds a
// field, rename the frame "message" to "message without" that field, and add a new one. Leave the others unchanged.
func TestFramesKeepTheirFormat(t *testing.T) {
	text := must.ReadFile(t, "testdata/frames")
	for line := range strings.Lines(string(text)) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		name := line[:at]
		raw, err := hex.DecodeString(strings.TrimSpace(line[at:]))
		must.Succeed(t, err)
		frame, err := Parse(content(t, raw))
		if err != nil {
			t.Errorf("%s: %s", name, err)
			continue
		}
		if again := Append(nil, frame); !bytes.Equal(again, raw) {
			t.Errorf("%s: got %x, want %x", name, again, raw)
		}
		if name == "message" && !reflect.DeepEqual(frame.Message, &full) {
			t.Errorf("%s: got %+v, want %+v", name, frame.Message, &full)
		}
	}
}

// TestFieldsOfLaterReleasesAreSkipped adds a field that no release has to each message.
func TestFieldsOfLaterReleasesAreSkipped(t *testing.T) {
	later := protowire.AppendTag(nil, 1000, protowire.BytesType)
	later = protowire.AppendString(later, "later")
	for name, f := range map[string]Frame{
		"message":      {Message: &full},
		"hello":        {Hello: &Hello{Protocol: 1, Name: "a", Life: 9}},
		"peer address": {PeerAddress: &PeerAddress{Name: "b", Address: "[fd00::7]:7373"}},
	} {
		number, _, n := protowire.ConsumeTag(body(t, f))
		inner, _ := protowire.ConsumeBytes(body(t, f)[n:])
		extended := protowire.AppendTag(nil, number, protowire.BytesType)
		extended = protowire.AppendBytes(extended, append(bytes.Clone(inner), later...))
		got, err := Parse(append(extended, later...))
		if err != nil {
			t.Errorf("%s: %s", name, err)
			continue
		}
		if again := Append(nil, got); !bytes.Equal(again, Append(nil, f)) {
			t.Errorf("%s: got %x, want %x", name, again, Append(nil, f))
		}
	}
}

// content returns a frame without its length.
func content(t *testing.T, raw []byte) []byte {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(raw))
	_, err := ReadSize(r, MaxFrame)
	must.Succeed(t, err)
	rest, err := io.ReadAll(r)
	must.Succeed(t, err)
	return rest
}
