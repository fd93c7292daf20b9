package membership

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// text is a document in YAML, a member to a line, for those who look at it. It is
// written for each plan, and this takes a twentieth of the time of a library that
// takes any type.
func encodeDocument(d control.Document) string {
	g := &d.Group
	var b strings.Builder
	line := func(key string, value any) { fmt.Fprintf(&b, "%s: %s\n", key, flowValue(value)) }
	list := func(key string, members []control.Member) {
		b.WriteString(key + ":\n")
		indent := key[:len(key)-len(strings.TrimLeft(key, " "))]
		for _, m := range members {
			fmt.Fprintf(&b, "%s- %s\n", indent, flowValue(m))
		}
	}
	line("uid", d.UID)
	line("generation", d.Generation)
	line("revision", d.Revision)
	b.WriteString("group:\n")
	line("  name", g.Name)
	line("  algorithm", g.Algorithm)
	line("  safety", g.Safety)
	line("  preemption", g.Preemption)
	line("  timing", g.Timing)
	line("  application", g.Application)
	line("  version", g.Version)
	list("  members", g.Members)
	if g.Previous != nil {
		b.WriteString("  previous:\n")
		line("    version", g.Previous.Version)
		list("    members", g.Previous.Members)
	}
	if len(g.Departed) > 0 {
		line("  departed", g.Departed)
	}
	if g.Floor > 0 {
		line("  floor", g.Floor)
	}
	return b.String()
}

// flow is a value in a line. What is JSON is YAML, too.
func flowValue(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("a document can't be written: %v", err)) // It has nothing but numbers and strings.
	}
	return data
}
