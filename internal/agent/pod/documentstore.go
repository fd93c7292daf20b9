package pod

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/state"
)

// suffix ends the names of the files in the state directory: GROUP.document.
const suffix = ".document"

// header begins the first line of each file. The line ends with the checksum of all
// that follows it. The number is the version of the format.
const header = "conclave document 1, sha256 "

// groupRecord is what the agent stores for a group. After the agent has left the group,
// the record has no document, and documents up to its revision are outdated.
type groupRecord struct {
	UID      string `json:"uid"`
	Revision int64  `json:"revision"`
	// Lease is the longest lease of the grants in this group.
	Lease    time.Duration `json:"lease"`
	Document string        `json:"document,omitempty"`
}

// documentStore stores the last document of each group durably.
type documentStore struct{ dir string }

func (s documentStore) path(group string) string { return filepath.Join(s.dir, group+suffix) }

// load returns the record of a group, a zero one if there is none.
func (s documentStore) load(group string) (groupRecord, error) {
	path := s.path(group)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return groupRecord{}, nil
	case err != nil:
		return groupRecord{}, fmt.Errorf("cannot read the document of group %s: %w", group, err)
	}
	first, body, _ := bytes.Cut(data, []byte("\n"))
	if string(first) != fmt.Sprintf("%s%x", header, sha256.Sum256(body)) {
		return groupRecord{}, fmt.Errorf("%s is damaged", path)
	}
	var record groupRecord
	if err := json.Unmarshal(body, &record); err != nil {
		return groupRecord{}, fmt.Errorf("%s is invalid: %w", path, err)
	}
	return record, nil
}

// save replaces the record of a group. When save returns nil, the record is durable.
func (s documentStore) save(group string, record groupRecord) error {
	body, err := json.Marshal(record)
	if err == nil {
		err = state.ReplaceFile(s.path(group), append(fmt.Appendf(nil, "%s%x\n", header, sha256.Sum256(body)), body...))
	}
	if err != nil {
		return fmt.Errorf("cannot store the document of group %s: %w", group, err)
	}
	return nil
}
