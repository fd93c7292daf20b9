package dashboard

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/describe"
)

// Key is NAMESPACE/NAME of a group.
type Key string

// keyOf returns the key of a group.
func keyOf(g *v1.ElectionGroup) Key { return Key(g.Namespace + "/" + g.Name) }

// Connection is the state of the connection to the API server.
type Connection struct {
	// State is Connecting before the first list, Connected or Lost.
	State string `json:"state"`
	// Error is why the connection is lost, or why there is none yet.
	Error string `json:"error,omitempty"`
	// SilentSince is since when the operator has not shown that it runs. It is zero while it does, and if that is unknown.
	SilentSince time.Time `json:"silentSince,omitzero"`
	// Runbook is the address of the runbook about that.
	Runbook string `json:"runbook,omitempty"`
}

// The states of a connection.
const (
	Connecting = "connecting"
	Connected  = "connected"
	Lost       = "lost"
)

// Store has the known state of all groups. Its methods may be called concurrently.
type Store struct {
	// Now returns the time of the cluster. It is time.Now unless it is set before the store is used.
	Now func() time.Time

	mu         sync.Mutex
	groups     map[Key]*v1.ElectionGroup
	connection Connection
	// listed is whether the groups have been read.
	listed bool
	// subscribers are notified of each change.
	subscribers map[*subscriber]struct{}
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{
		Now: time.Now, groups: map[Key]*v1.ElectionGroup{}, connection: Connection{State: Connecting},
		subscribers: map[*subscriber]struct{}{},
	}
}

// Replace stores all groups. Callers must not use them any more.
func (s *Store) Replace(groups []v1.ElectionGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.groups
	s.listed = true
	s.groups = map[Key]*v1.ElectionGroup{}
	for i := range groups {
		key := keyOf(&groups[i])
		s.groups[key] = trim(&groups[i])
		if old := before[key]; old == nil || old.ResourceVersion != groups[i].ResourceVersion {
			s.notify(key)
		}
		delete(before, key)
	}
	for key := range before {
		s.notify(key)
	}
}

// Set stores a group. The caller must not use it any more.
func (s *Store) Set(g *v1.ElectionGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = true
	s.groups[keyOf(g)] = trim(g)
	s.notify(keyOf(g))
}

// trim removes what no page shows and what can be larger than all the rest.
func trim(g *v1.ElectionGroup) *v1.ElectionGroup {
	g.ManagedFields, g.Annotations = nil, nil
	return g
}

// Delete removes a group.
func (s *Store) Delete(g *v1.ElectionGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups, keyOf(g))
	s.notify(keyOf(g))
}

// SetConnection stores the state of the connection. SilentSince remains. A connection can't be
// lost before the groups have been read: the pages would say that there are none.
func (s *Store) SetConnection(c Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.SilentSince = s.connection.SilentSince
	if c.State == Lost && !s.listed {
		c.State = Connecting
	}
	s.setConnection(c)
}

// SetSilentSince stores since when the operator has not shown that it runs, or zero.
func (s *Store) SetSilentSince(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.connection
	c.SilentSince = at.UTC().Round(0) // without the monotonic clock, so that the same times are equal
	s.setConnection(c)
}

// setConnection notifies each page of a change. The caller holds the lock.
func (s *Store) setConnection(c Connection) {
	if c.Runbook = ""; !c.SilentSince.IsZero() {
		c.Runbook = describe.SilenceRunbook
	}
	if s.connection == c {
		return
	}
	s.connection = c
	for subscriber := range s.subscribers {
		subscriber.connection = true
		subscriber.wakeUp()
	}
}

// notify marks a group as changed. The caller holds the lock.
func (s *Store) notify(key Key) {
	for subscriber := range s.subscribers {
		if subscriber.only == "" || subscriber.only == key {
			subscriber.changed[key] = true
			subscriber.wakeUp()
		}
	}
}

// subscriber collects changes for one page. A slow page gets the latest state of each
// group, and not each change, so what waits for it is bounded by the number of groups.
type subscriber struct {
	// only is the key of the group to observe, or "" for all.
	only Key
	wake chan struct{}

	// The lock of the store protects the fields below.

	changed    map[Key]bool
	connection bool
}

func (s *subscriber) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // It is awake.
	}
}

// subscribe returns a subscriber. First, it gets the connection and the present groups.
func (s *Store) subscribe(only Key) *subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := &subscriber{only: only, wake: make(chan struct{}, 1), changed: map[Key]bool{}}
	s.subscribers[sub] = struct{}{}
	return sub
}

func (s *Store) unsubscribe(sub *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subscribers, sub)
}

// change is a new state of a group, which is nil if it was deleted.
type change struct {
	key   Key
	group *v1.ElectionGroup
}

// take returns what has changed since the last call, in the order of the keys.
func (s *Store) take(sub *subscriber) (changes []change, connection *Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(sub.changed)) {
		changes = append(changes, change{key, s.groups[key]})
	}
	clear(sub.changed)
	if sub.connection {
		sub.connection = false
		connection = new(s.connection)
	}
	return changes, connection
}

// all returns all groups in the order of their keys, and the connection.
func (s *Store) all() ([]*v1.ElectionGroup, Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	groups := slices.SortedFunc(maps.Values(s.groups), func(a, b *v1.ElectionGroup) int {
		return strings.Compare(string(keyOf(a)), string(keyOf(b)))
	})
	return groups, s.connection
}

// find returns a group, or nil. Callers must not change it.
func (s *Store) find(key Key) *v1.ElectionGroup {
	g, _ := s.get(key)
	return g
}

// get returns a group, or nil, and the connection.
func (s *Store) get(key Key) (*v1.ElectionGroup, Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[key], s.connection
}
