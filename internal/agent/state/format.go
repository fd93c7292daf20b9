package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/conclave-dev/conclave/internal/agent/config"
)

// header begins the first line of each file. The line ends with the checksum of all
// that follows it. The number is the version of the format.
const header = "conclave member list 1, sha256 "

// record is the content of a file. It names the group, so that a file under the name of
// another group is detected.
type record struct {
	Group string      `json:"group"`
	UID   string      `json:"uid,omitempty"`
	List  config.List `json:"list"`
	// LeaseMillis is the longest lease of the grants that may still be in force.
	LeaseMillis int64 `json:"leaseMillis,omitempty"`
}

func encode(r record) ([]byte, error) {
	body, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, err
	}
	body = append(body, '\n')
	return fmt.Appendf(nil, "%s%x\n%s", header, sha256.Sum256(body), body), nil
}

func decode(key Key, data []byte) (record, error) {
	first, body, _ := bytes.Cut(data, []byte("\n"))
	sum, ok := strings.CutPrefix(string(first), header)
	switch {
	case !ok:
		return record{}, errors.New("is not a member list")
	case sum != fmt.Sprintf("%x", sha256.Sum256(body)):
		return record{}, errors.New("is damaged")
	}
	var r record
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return record{}, fmt.Errorf("is invalid: %w", err)
	}
	switch {
	case r.Group != key.Group || r.UID != key.UID:
		return record{}, fmt.Errorf("is the list of group %s", r.Group)
	case r.List.Version == 0 || len(r.List.Members) == 0:
		return record{}, errors.New("is without a list")
	}
	return r, nil
}
