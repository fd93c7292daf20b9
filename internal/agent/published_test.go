package agent

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestLastPublicationWins: the document that was applied last, which comes first, may have
// been published before the others. For example, an agent that restarts applies those that
// it has stored in any order.
func TestLastPublicationWins(t *testing.T) {
	published := func(revision int64, members ...control.Member) config.Group {
		return config.Group{Provenance: config.Provenance{Revision: revision}, List: control.List{Version: 1, Members: members}}
	}
	renewed := published(9, control.Member{Name: "b", Address: "10.0.0.9:7373", UID: "new-b"}, control.Member{Name: "c"})
	renewed.List.Previous = &control.PreviousList{Members: []control.Member{{Name: "d", UID: "d"}, {Name: "c", UID: "former-c"}}}
	c := &config.Config{Self: "a", Groups: []config.Group{
		published(5, control.Member{Name: "b", Address: "10.0.0.5:7373", UID: "former-b"}, control.Member{Name: "e", UID: "e"}),
		renewed,
		published(9, control.Member{Name: "b", Address: "10.0.0.9:7373", UID: "other-b"}, control.Member{Name: "c", Address: "10.0.0.3:7373"}),
	}}
	expect.DeepEqualf(t, addresses(c), map[string]string{"b": "10.0.0.9:7373", "c": "10.0.0.3:7373", "d": "", "e": ""},
		"addresses")
	expect.DeepEqualf(t, podUIDs(c), map[string][]string{"b": {"new-b", "other-b"}, "d": {"d"}, "e": {"e"}}, "UIDs")
}
