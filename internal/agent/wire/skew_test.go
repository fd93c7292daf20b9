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

	"github.com/conclave-dev/conclave/internal/testing/must"
)

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
	if _, err := ReadSize(r, MaxFrame); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	must.Succeed(t, err)
	return rest
}
