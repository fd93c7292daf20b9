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

// header opens each file; the checksum of all that follows its line comes
// behind it. The number is the format's.
const header = "conclave member list 1, sha256 "

// kept is the text of a file. The group is in it, so that a file under another
// group's name is noticed.
type record struct {
	Group string      `json:"group"`
	UID   string      `json:"uid,omitempty"`
	List  config.List `json:"list"`
	// LeaseMillis is the longest lease for which the agent may have granted what
	// is still in force.
	LeaseMillis int64 `json:"leaseMillis,omitempty"`
}

func encode(file record) ([]byte, error) {
	body, err := json.MarshalIndent(file, "", " ")
	if err != nil {
		return nil, err
	}
	body = append(body, '\n')
	return fmt.Appendf(nil, "%s%x\n%s", header, sha256.Sum256(body), body), nil
}

func decode(of Key, data []byte) (record, error) {
	first, body, _ := bytes.Cut(data, []byte("\n"))
	sum, ok := strings.CutPrefix(string(first), header)
	switch {
	case !ok:
		return record{}, errors.New("is no member list of this agent's")
	case sum != fmt.Sprintf("%x", sha256.Sum256(body)):
		return record{}, errors.New("is damaged")
	}
	var file record
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return record{}, fmt.Errorf("can't be understood: %w", err)
	}
	switch {
	case file.Group != of.Group || file.UID != of.UID:
		return record{}, fmt.Errorf("is the list of group %s", file.Group)
	case file.List.Version == 0 || len(file.List.Members) == 0:
		return record{}, errors.New("has no list in it")
	}
	return file, nil
}
