package state

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
)

// identityFile has the identity of the directory, as text.
const identityFile = "identity"

// Identity returns the identity of the directory: a random number, which it has had since it was first used. A member
// that loses its directory gets another one.
func (s *Store) Identity() election.Identity { return s.identity }

func (s *Store) loadIdentity() error {
	path := filepath.Join(s.dir.Name(), identityFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.createIdentity(path)
	}
	if err != nil {
		return fmt.Errorf("cannot read the identity of the state directory: %w", err)
	}
	identity, err := memberlist.ParseIdentity(strings.TrimSuffix(string(text), "\n"))
	if err == nil && identity == 0 {
		err = errors.New("identity is missing")
	}
	if err != nil {
		return fmt.Errorf("%s is damaged: %w: restore it; or remove it, and this agent is a new member of its groups", path,
			err)
	}
	s.identity = election.Identity(identity)
	return nil
}

// GiveUpIdentity removes the identity: the next process in this directory gets another one, so it is another member,
// which has granted nothing. None of the grants of this process may be in force.
func (s *Store) GiveUpIdentity() error {
	err := os.Remove(filepath.Join(s.dir.Name(), identityFile))
	if err == nil {
		err = s.dir.Sync()
	}
	if err != nil {
		return fmt.Errorf("cannot give up the identity of the state directory: %w", err)
	}
	return nil
}

func (s *Store) createIdentity(path string) error {
	var random [8]byte
	_, _ = rand.Read(random[:]) // It never returns an error.
	s.identity = election.Identity(max(1, binary.LittleEndian.Uint64(random[:])))
	if err := ReplaceFile(path, []byte(memberlist.FormatIdentity(uint64(s.identity))+"\n"), 0o600); err != nil {
		return fmt.Errorf("cannot store the identity of the state directory: %w", err)
	}
	return nil
}
