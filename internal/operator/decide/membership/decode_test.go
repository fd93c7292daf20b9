package membership

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// TestDocumentsAreDecodedAsByALibrary decodes documents as the operator writes them, and in
// another format.
func TestDocumentsAreDecodedAsByALibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		text := MakePlan(*randomFacts(rng)).ConfigMap.Data[control.DocumentKey]
		var want control.Document
		if err := yaml.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		decoded, err := DecodeDocument(text)
		if err != nil || !reflect.DeepEqual(*decoded, want) {
			t.Fatalf("got %+v (%v), want %+v of\n%s", decoded, err, want, text)
		}
		other, err := yaml.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeDocument(string(other)); err != nil || !reflect.DeepEqual(*got, want) {
			t.Fatalf("got %+v (%v), want %+v of\n%s", got, err, want, other)
		}
	}
}

// The largest document has a thousand members with the longest names, and as many that were
// members before.
func TestLargestDocumentIsDecoded(t *testing.T) {
	document := control.Document{UID: "0b5c8f3e-0000-0000-0000-000000000000", Generation: 1, Revision: 1_800_000_000_000}
	g := &document.Group
	g.Previous = &control.PreviousList{Version: 1, LeaseMillis: 500}
	for i := range v1.MaxMembers {
		name := strings.Repeat("n", 249) + fmt.Sprintf("%04d", i)
		m := control.Member{Name: name, Priority: v1.MaxPriority, Address: "[2001:0db8:85a3:0000:1111:8a2e:0370:7334]:7373", UID: document.UID}
		g.Members, g.Previous.Members, g.Departed = append(g.Members, m), append(g.Previous.Members, m), append(g.Departed, name)
	}
	text := encodeDocument(document)
	t.Logf("%d bytes", len(text))
	got, err := DecodeDocument(text)
	if err != nil || !reflect.DeepEqual(*got, document) {
		t.Errorf("got another document (%v), want that which was encoded", err)
	}
}

// A user may write anything.
func TestForeignDocumentsAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"many small values": "others: [" + strings.Repeat("[],", 300_000) + "]",
		"many nested lists": "others:\n" + strings.Repeat("- ", 300_000),
		"aliases":           "uid: u\nothers: [&a [], *a]",
		"too many members":  "uid: \"u\"\ngroup:\n  members:\n" + strings.Repeat("  - {}\n", v1.MaxMembers+1),
		"too many departed": "uid: \"u\"\ngroup:\n  departed: [" + strings.Repeat("\"\",", v1.MaxMembers) + "\"\"]\n",
		"too many, in flow": "group: {members: [" + strings.Repeat("{},", v1.MaxMembers+1) + "]}",
		"no YAML":           "uid: [",
	} {
		if got, err := DecodeDocument(text); err == nil {
			t.Errorf("%s: got %.100v, want an error", name, got)
		}
	}
}
