// Package state stores what an agent must remember of its groups: one file for each group has the adopted member list,
// the reserved terms, the lease of its grants and, if the group comes from an operator, the document in force.
//
// A member never returns to a list older than one that it has adopted: otherwise a coordinator could rely on a majority
// of the old list although the members of a newer list have elected another one (see docs/adr/0002-grants.md). So a
// list is durable before the agent adopts it, and an unreadable file is an error, not an empty history.
//
// The agent grants and claims only terms that it has reserved here before. So after a crash
// of its machine it knows a bound on what it has granted.
package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
)

// suffix ends the names of the files: GROUP.state.
const suffix = ".state"

// Store is the directory with the records of one agent.
type Store struct {
	lockedAt time.Duration
	identity election.Identity

	mu     sync.Mutex
	dir    *os.File
	closed bool
}

// Open opens the directory, and creates it if it doesn't exist. It locks the directory for this agent until Close.
func Open(path string) (*Store, error) {
	if err := makeDir(path); err != nil {
		return nil, fmt.Errorf("cannot create the state directory: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open the state directory: %w", err)
	}
	s := &Store{dir: dir}
	if err = s.lock(); err == nil {
		s.lockedAt = clock.Boottime()
		err = s.loadIdentity()
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
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
	return syncDir(dir)
}

// lock locks the directory and removes files that a killed agent left unfinished. The
// kernel releases the lock when the process ends.
func (s *Store) lock() error {
	dir := s.dir.Name()
	err := syscall.Flock(int(s.dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("cannot lock the state directory %s: another agent uses it; each agent needs its own directory",
			dir)
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
				return fmt.Errorf("cannot remove an unfinished file: %w", err)
			}
		}
	}
	return nil
}

// Close unlocks the directory. A process that this one is just starting still has the file descriptor, which would keep
// the directory locked until then if it were only closed. Nothing is written from then on: the next agent may have
// locked the directory.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return errors.Join(syscall.Flock(int(s.dir.Fd()), syscall.LOCK_UN), s.dir.Close())
}

// Key identifies a group. Groups of the same name that exist one after the other have
// different UIDs. A group in a configuration file has no UID.
type Key struct{ Group, UID string }

// KeyOf returns the key of a group.
func KeyOf(g *config.Group) Key { return Key{g.Name, g.UID} }

// Record is what an agent stores of a group.
type Record struct {
	// UID is that of the group. The record of a group in a configuration file has none.
	UID string `json:"uid,omitempty"`
	// List is the newest list that the agent has adopted, nil if there is none.
	List *memberlist.List `json:"list,omitempty"`
	// Reserved is the highest term that the agent may grant or claim. Save reserves the first block of each list.
	Reserved election.Term `json:"reserved,omitempty"`
	// Joined is set before an agent votes in the group for the first time.
	Joined bool `json:"joined,omitempty"`
	// Peers are the identities of the other members that the agent has met under List, by name, if it is from a file.
	Peers map[string]election.Identity `json:"peers,omitempty"`
	// Lease is the longest lease of the grants that may still be in force.
	Lease time.Duration `json:"lease,omitempty"`
	// Document is the operator's document in force. It is empty after the agent has left the group: then, documents up to
	// Revision are outdated. The configuration file itself is the durable copy of the settings of its groups.
	Document string `json:"document,omitempty"`
	Revision int64  `json:"revision,omitempty"`
}

// Groups returns the names of the groups that have a record.
func (s *Store) Groups() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(s.dir.Name(), "*"+suffix))
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), suffix)
	}
	return files, err
}

// Load returns the record of the group that had this name last, a zero one if there is none.
func (s *Store) Load(group string) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(group)
}

// Save replaces the record of a group. Under the same UID, it retains the stored list if the
// new record has none, the reservation, and a longer lease (see Join). When Save returns nil, the record
// is durable. Otherwise the agent must not use it. For the consequences of removing the record
// of a group that exists, see docs/adr/0057-identities-of-state-directories.md.
func (s *Store) Save(group string, next Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored, err := s.load(group)
	if err != nil {
		return err // The list of the unreadable record may be newer.
	}
	if stored.UID == next.UID {
		if next.List == nil {
			next.List = stored.List
		}
		if stored.List != nil && next.List.Version < stored.List.Version {
			return fmt.Errorf("cannot replace version %d of the list of group %s, which has been adopted, by version %d",
				stored.List.Version, group, next.List.Version)
		}
		if stored.List != nil && next.List.Version == stored.List.Version {
			next.Peers = stored.Peers
		}
		next.Lease, next.Reserved, next.Joined = max(next.Lease, stored.Lease), stored.Reserved, stored.Joined
	}
	if next.List != nil {
		next.Reserved = max(next.Reserved, election.FirstTerm(next.List.Version)+election.Block)
	}
	if reflect.DeepEqual(next, stored) {
		return nil // So a process that starts with what is stored needs no space on the disk.
	}
	return s.replace(group, next)
}

// Leave removes the list and the document of a group. Documents up to revision are outdated
// from then on. What was granted remains.
func (s *Store) Leave(key Key, revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored, err := s.load(key.Group)
	if err != nil {
		return err
	}
	if stored.UID != key.UID {
		return nil // Another group has replaced it.
	}
	return s.replace(key.Group, Record{
		UID: key.UID, Lease: stored.Lease, Reserved: stored.Reserved, Joined: stored.Joined, Revision: revision,
	})
}

func (s *Store) load(group string) (Record, error) {
	path, err := s.path(group)
	if err != nil {
		return Record{}, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("cannot read the state of group %s: %w", group, err)
	}
	r, err := decode(group, data)
	if err != nil {
		// Without the record alone, the agent would take itself for a voter that has granted nothing.
		return Record{}, fmt.Errorf("%s %w: remove the whole state directory while the agent is down: "+
			"then it is another voter", path, err)
	}
	return r, nil
}

func (s *Store) replace(group string, r Record) error {
	path, err := s.path(group)
	if err != nil {
		return err
	}
	if s.closed {
		return fmt.Errorf("cannot store the state of group %s: %w", group, os.ErrClosed)
	}
	data, err := encode(group, r)
	if err == nil {
		err = ReplaceFile(path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot store the state of group %s: %w", group, err)
	}
	return nil
}

func (s *Store) path(group string) (string, error) {
	if err := config.CheckGroupName(group); err != nil {
		return "", fmt.Errorf("group name %w", err)
	}
	return filepath.Join(s.dir.Name(), group+suffix), nil
}

// change changes the record of a group that has a list, and returns the record from before.
func (s *Store) change(key Key, change func(*Record)) (before Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, err = s.load(key.Group); err != nil {
		return Record{}, err
	}
	if before.UID != key.UID || before.List == nil {
		return Record{}, fmt.Errorf("cannot store the state of group %s: the group has no stored list", key.Group)
	}
	next := before
	if change(&next); !reflect.DeepEqual(next, before) {
		err = s.replace(key.Group, next)
	}
	return before, err
}

// Join records that the agent is going to vote in a group whose list is stored, and to grant for lease. It returns the
// record from before, with the longest lease of the grants that may be in force, at least lease: the holder of such a
// grant relies on the lease at the time of the grant. If Join returns an error, the agent must not grant anything.
func (s *Store) Join(key Key, lease time.Duration) (Record, error) {
	before, err := s.change(key, func(r *Record) { r.Joined, r.Lease = true, max(lease, r.Lease) })
	before.Lease = max(lease, before.Lease)
	return before, err
}

// Reserve records that the agent may grant and claim terms up to reserved, and which peers it has met under a version
// of the list.
func (s *Store) Reserve(key Key, reserved election.Term, version uint32, peers map[string]election.Identity) error {
	_, err := s.change(key, func(r *Record) {
		r.Reserved = max(r.Reserved, reserved)
		if r.List.Version == version && len(peers) > len(r.Peers) {
			r.Peers = peers
		}
	})
	return err
}

// LeaseExpired records that all grants for longer than lease have expired.
func (s *Store) LeaseExpired(key Key, lease time.Duration) error {
	_, err := s.change(key, func(r *Record) { r.Lease = lease })
	return err
}
