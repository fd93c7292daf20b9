package docs

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestDecisionsAreShort(t *testing.T) {
	decisions, _ := filepath.Glob(filepath.Join(root, "docs/adr/[0-9]*.md"))
	if len(decisions) == 0 {
		t.Error("found no decisions")
	}
	for _, path := range decisions {
		if words := len(strings.Fields(read(t, path))); words > 400 {
			t.Errorf("%s has %d words, want at most 400: state the decision and its reasons, not its history", path, words)
		}
	}
}
