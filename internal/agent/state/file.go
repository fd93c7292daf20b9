package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// TempSuffix ends the name of a file while ReplaceFile writes it. Files with this
// suffix can be removed when no process writes to the directory.
const TempSuffix = ".new"

// ReplaceFile replaces a file atomically: if the machine stops, either the old content
// or the new one is there, with this mode. When ReplaceFile returns nil, the new content is durable.
func ReplaceFile(path string, data []byte, mode fs.FileMode) error {
	temp := path + TempSuffix
	err := write(temp, data, mode)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // Otherwise, the next attempt replaces it.
		return err
	}
	return syncDir(path)
}

func write(path string, data []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = file.Chmod(mode); err == nil { // Whatever the umask is.
		_, err = file.Write(data)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// syncDir makes the directory entry of a file durable.
func syncDir(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// header begins the first line of each file. The line ends with the checksum of all
// that follows it. The number is the version of the format.
const header = "conclave group state 2, sha256 "

// content is the content of a file. It names the group, so that a file under the name of another group is detected.
type content struct {
	Group string `json:"group"`
	Record
}

func encode(group string, r Record) ([]byte, error) {
	body, err := json.MarshalIndent(content{group, r}, "", " ")
	if err != nil {
		return nil, err
	}
	body = append(body, '\n')
	return fmt.Appendf(nil, "%s%x\n%s", header, sha256.Sum256(body), body), nil
}

func decode(group string, data []byte) (Record, error) {
	first, body, _ := bytes.Cut(data, []byte("\n"))
	sum, ok := strings.CutPrefix(string(first), header)
	switch {
	case !ok:
		return Record{}, errors.New("is not the state of a group")
	case sum != fmt.Sprintf("%x", sha256.Sum256(body)):
		return Record{}, errors.New("is damaged")
	}
	var c content
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return Record{}, fmt.Errorf("is invalid: %w", err)
	}
	switch {
	case c.Group != group:
		return Record{}, fmt.Errorf("is the state of group %s", c.Group)
	case c.UID == "" && c.List == nil || c.List != nil && (c.List.Version == 0 || len(c.List.Members) == 0):
		return Record{}, errors.New("contains no list")
	}
	return c.Record, nil
}
