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

// What was taken over last in a group is in GROUP.document in the state folder.
const suffix = ".document"

// header opens each file; the checksum of all that follows its line comes behind
// it. The number is the format's.
const header = "conclave document 1, sha256 "

// kept is what is remembered of a group. It is remembered, too, when the group was
// left: then there is no document, and those up to its revision are over.
type groupRecord struct {
	UID      string `json:"uid"`
	Revision int64  `json:"revision"`
	// Lease is how long what was promised in this group lasts.
	Lease    time.Duration `json:"lease"`
	Document string        `json:"document,omitempty"`
}

// keeper keeps documents where a restart finds them.
type documentStore struct{ dir string }

func (k documentStore) path(group string) string { return filepath.Join(k.dir, group+suffix) }

// load returns what is kept of a group, nothing if there is nothing.
func (k documentStore) load(group string) (groupRecord, error) {
	path := k.path(group)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return groupRecord{}, nil
	case err != nil:
		return groupRecord{}, fmt.Errorf("read the document of group %s: %w", group, err)
	}
	first, body, _ := bytes.Cut(data, []byte("\n"))
	if string(first) != fmt.Sprintf("%s%x", header, sha256.Sum256(body)) {
		return groupRecord{}, fmt.Errorf("%s is damaged", path)
	}
	var of groupRecord
	if err := json.Unmarshal(body, &of); err != nil {
		return groupRecord{}, fmt.Errorf("%s can't be understood: %w", path, err)
	}
	return of, nil
}

// save keeps what is remembered of a group. When it returns nil, that outlives the
// process and the machine.
func (k documentStore) save(group string, of groupRecord) error {
	body, err := json.Marshal(of)
	if err == nil {
		err = state.ReplaceFile(k.path(group), append(fmt.Appendf(nil, "%s%x\n", header, sha256.Sum256(body)), body...))
	}
	if err != nil {
		return fmt.Errorf("keep the document of group %s: %w", group, err)
	}
	return nil
}
