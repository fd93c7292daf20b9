package membership

import (
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// maxValues has room for a document with the largest lists, whose members have four fields each,
// and for fields that a later version may add. A user can write a megabyte into a ConfigMap, and
// decoding YAML can expand a megabyte of short values to hundreds of megabytes.
const maxValues = 64 * v1.MaxMembers

var errTooManyValues = errors.New("the operator writes documents with fewer values")

// DecodeDocument decodes the document in a ConfigMap. It returns an error if the operator can't
// have written it.
func DecodeDocument(text string) (*control.Document, error) {
	if countValues(text) > maxValues {
		return nil, errTooManyValues
	}
	document := &control.Document{}
	if err := yaml.Unmarshal([]byte(text), document); err != nil {
		return nil, fmt.Errorf("decode document: %w", err)
	}
	return document, checkLists(document)
}

// countValues returns how many values a YAML document has at most. With an alias, it could have more:
// the operator's documents have no anchors, because JSON escapes their sign.
func countValues(text string) int {
	if strings.Contains(text, "&") {
		return maxValues + 1
	}
	count := 1
	for i := range len(text) {
		switch text[i] {
		case '\n', '\r', ',', '[', '{':
			count++
		case '-', ':', '?': // Names have the first, and addresses the second.
			if i+1 < len(text) && (text[i+1] == ' ' || text[i+1] == '\t') {
				count++
			}
		}
	}
	return count
}

// checkLists returns an error if a document has more than the largest list.
func checkLists(d *control.Document) error {
	lists := []int{len(d.Group.Members), len(d.Group.Departed)}
	if d.Group.Previous != nil {
		lists = append(lists, len(d.Group.Previous.Members))
	}
	for _, size := range lists {
		if size > v1.MaxMembers {
			return fmt.Errorf("a group has at most %d members, got %d", v1.MaxMembers, size)
		}
	}
	return nil
}
