// Package state keeps the member lists that an agent has adopted, where a
// restart finds them.
//
// A member never goes back to an older list than it has adopted: otherwise a
// majority of the old list can be outvoted without knowing it, for good (see
// docs/adr/0002-grants.md). So a list is on the disk before it is adopted, and
// what can't be read is an error, never an empty history.
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

	"github.com/conclave-dev/conclave/internal/agent/config"
)

// A list is in GROUP.list, or in GROUP@UID.list if an operator has given the group
// out; and with .new behind it while it is being written.
const suffix = ".list"

// Store is the folder of one agent's lists.
type Store struct {
	mu  sync.Mutex
	dir *os.File
}

// Open opens the folder, which it makes if need be, for this agent alone until
// Close.
func Open(dir string) (*Store, error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("make the state folder: %w", err)
	}
	folder, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the state folder: %w", err)
	}
	s := &Store{dir: folder}
	if err := s.lock(); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return s, nil
}

// makeDir makes a folder that outlives a power cut.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	above, err := os.Open(parent)
	if err != nil {
		return err
	}
	return errors.Join(above.Sync(), above.Close())
}

// claim locks the folder and clears away what a killed agent hasn't finished.
// The kernel frees the lock when the process ends, however it does.
func (s *Store) lock() error {
	dir := s.dir.Name()
	err := syscall.Flock(int(s.dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("another agent uses the state folder %s: give each agent one of its own", dir)
	} else if err != nil {
		return fmt.Errorf("lock the state folder %s: %w", dir, err)
	}
	files, err := s.dir.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("read the state folder: %w", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file.Name(), suffix+TempSuffix) {
			if err := os.Remove(filepath.Join(dir, file.Name())); err != nil {
				return fmt.Errorf("remove an unfinished list: %w", err)
			}
		}
	}
	return nil
}

// Close leaves the folder to others.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir.Close()
}

// Key names a group: two of the same name, one after the other, have different
// UIDs. One in a file has none.
type Key struct{ Group, UID string }

// KeyOf is the key of a group.
func KeyOf(g *config.Group) Key { return Key{g.Name, g.UID} }

func (s *Store) path(of Key) (string, error) {
	if err := config.CheckGroup(of.Group); err != nil {
		return "", fmt.Errorf("the group's name %w", err)
	}
	name := of.Group
	if of.UID != "" {
		if err := config.CheckUID(of.UID); err != nil {
			return "", fmt.Errorf("the group's UID %w", err)
		}
		name += "@" + of.UID
	}
	return filepath.Join(s.dir.Name(), name+suffix), nil
}

// Load returns the newest list that the agent has adopted in a group, and
// whether there is one.
func (s *Store) Load(of Key) (config.List, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, found, err := s.load(of)
	return file.List, found, err
}

// Remove forgets a group that is over: see docs/adr/0007-lists-in-files.md on what
// becomes of one that isn't.
func (s *Store) Remove(of Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, err := s.path(of)
	if err == nil {
		err = RemoveFile(path)
	}
	if err != nil {
		return fmt.Errorf("forget group %s's list: %w", of.Group, err)
	}
	return nil
}

func (s *Store) load(of Key) (record, bool, error) {
	path, err := s.path(of)
	if err != nil {
		return record{}, false, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	if err != nil {
		return record{}, false, fmt.Errorf("read the adopted list: %w", err)
	}
	file, err := decode(of, data)
	if err != nil {
		return record{}, false, fmt.Errorf("%s %w: restore it; or, if no other agent of group %s runs or the "+
			"configuration names the newest list and its previous, remove it", path, err, of.Group)
	}
	return file, true, nil
}

// Save keeps a list in place of the one before, for an agent that grants for lease
// (see RecordLease). When it returns nil, the list outlives the process and the machine;
// otherwise it must not be adopted.
func (s *Store) Save(of Key, list config.List, lease time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, found, err := s.load(of)
	if err != nil {
		return err // what can't be read may be newer
	}
	if found && list.Version < file.List.Version {
		return fmt.Errorf("version %d of group %s's list can't replace version %d, which has been adopted",
			list.Version, of.Group, file.List.Version)
	}
	file.Group, file.UID, file.List = of.Group, of.UID, list
	file.LeaseMillis = max(file.LeaseMillis, lease.Milliseconds())
	if err := s.replace(of, file); err != nil {
		return fmt.Errorf("keep version %d of group %s's list: %w", list.Version, of.Group, err)
	}
	return nil
}

func (s *Store) replace(of Key, file record) error {
	path, err := s.path(of)
	if err != nil {
		return err
	}
	data, err := encode(file)
	if err != nil {
		return err
	}
	return ReplaceFile(path, data)
}
