// Package state stores the member lists that an agent has adopted.
//
// A member never returns to a list older than one that it has adopted: otherwise a
// coordinator could rely on a majority of the old list although the members of a newer
// list have elected another one (see docs/adr/0002-grants.md). So a list is durable
// before the agent adopts it, and an unreadable file is an error, not an empty history.
package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
)

// A list is stored in GROUP.list, or in GROUP@UID.list if the group comes from an operator.
const suffix = ".list"

// Store is the directory with the lists of one agent.
type Store struct {
	lockedAt time.Duration

	mu  sync.Mutex
	dir *os.File
}

// Open opens the directory, and creates it if it doesn't exist. It locks the directory
// for this agent until Close.
func Open(path string) (*Store, error) {
	if err := makeDir(path); err != nil {
		return nil, fmt.Errorf("cannot create the state directory: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open the state directory: %w", err)
	}
	s := &Store{dir: dir}
	if err := s.lock(); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	s.lockedAt = clock.Boottime()
	return s, nil
}

// LockedAt returns the reading of clock.Boottime when Open had locked the directory. The earlier
// processes in this container had ended by then. Those in a pod of this name that was replaced had
// ended before: the kubelet deletes a pod when its containers have stopped.
func (s *Store) LockedAt() time.Duration { return s.lockedAt }

// makeDir creates a directory with its parents, durably.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	path := filepath.Dir(filepath.Clean(dir))
	if path != dir {
		if err := makeDir(path); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	parent, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// lock locks the directory and removes files that a killed agent left unfinished. The
// kernel releases the lock when the process ends.
func (s *Store) lock() error {
	dir := s.dir.Name()
	err := syscall.Flock(int(s.dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("cannot lock the state directory %s: another agent uses it; each agent needs its own directory", dir)
	} else if err != nil {
		return fmt.Errorf("cannot lock the state directory %s: %w", dir, err)
	}
	files, err := s.dir.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("cannot read the state directory: %w", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file.Name(), suffix+TempSuffix) {
			if err := os.Remove(filepath.Join(dir, file.Name())); err != nil {
				return fmt.Errorf("cannot remove an unfinished list: %w", err)
			}
		}
	}
	return nil
}

// Close unlocks the directory.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir.Close()
}

// Key identifies a group. Groups of the same name that exist one after the other have
// different UIDs. A group in a configuration file has no UID.
type Key struct{ Group, UID string }

// KeyOf returns the key of a group.
func KeyOf(g *config.Group) Key { return Key{g.Name, g.UID} }

func (s *Store) path(key Key) (string, error) {
	if err := config.CheckGroupName(key.Group); err != nil {
		return "", fmt.Errorf("group name %w", err)
	}
	name := key.Group
	if key.UID != "" {
		if err := config.CheckUID(key.UID); err != nil {
			return "", fmt.Errorf("group UID %w", err)
		}
		name += "@" + key.UID
	}
	return filepath.Join(s.dir.Name(), name+suffix), nil
}

// Load returns the newest list that the agent has adopted in a group, and whether there
// is one.
func (s *Store) Load(key Key) (config.List, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, found, err := s.load(key)
	return r.List, found, err
}

// Remove removes the list of a group that no longer exists. For the consequences of
// removing the list of a group that does, see docs/adr/0007-member-lists-in-files.md.
func (s *Store) Remove(key Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, err := s.path(key)
	if err == nil {
		err = RemoveFile(path)
	}
	if err != nil {
		return fmt.Errorf("cannot remove the list of group %s: %w", key.Group, err)
	}
	return nil
}

func (s *Store) load(key Key) (record, bool, error) {
	path, err := s.path(key)
	if err != nil {
		return record{}, false, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	if err != nil {
		return record{}, false, fmt.Errorf("cannot read the adopted list: %w", err)
	}
	r, err := decode(key, data)
	if err != nil {
		return record{}, false, fmt.Errorf("%s %w: restore it; or, if no other agent of group %s runs or the "+
			"configuration has the newest list and its previous, remove it", path, err, key.Group)
	}
	return r, true, nil
}

// Save replaces the stored list of an agent that grants for lease (see RecordLease).
// When Save returns nil, the list is durable. Otherwise the agent must not adopt it.
func (s *Store) Save(key Key, list config.List, lease time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, found, err := s.load(key)
	if err != nil {
		return err // The unreadable list may be newer.
	}
	if found && list.Version < r.List.Version {
		return fmt.Errorf("cannot replace version %d of the list of group %s, which has been adopted, by version %d",
			r.List.Version, key.Group, list.Version)
	}
	r.Group, r.UID, r.List = key.Group, key.UID, list
	r.LeaseMillis = max(r.LeaseMillis, lease.Milliseconds())
	if err := s.replace(key, r); err != nil {
		return fmt.Errorf("cannot store version %d of the list of group %s: %w", list.Version, key.Group, err)
	}
	return nil
}

func (s *Store) replace(key Key, r record) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	data, err := encode(r)
	if err != nil {
		return err
	}
	return ReplaceFile(path, data)
}
