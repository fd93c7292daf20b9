package state

import (
	"fmt"
	"time"
)

// RecordLease records that the agent is going to grant for lease in a group whose list
// is stored. It returns the longest lease of earlier grants that may still be in force,
// at least lease: the holder of such a grant relies on the lease at the time of the
// grant. If RecordLease returns an error, the agent must not grant anything.
func (s *Store) RecordLease(key Key, lease time.Duration) (longest time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.load(key.Group)
	if err != nil {
		return 0, err
	}
	if r.UID != key.UID || r.List == nil {
		return 0, fmt.Errorf("cannot store the lease of group %s: the group has no stored list", key.Group)
	}
	longest = max(lease, r.Lease)
	return longest, s.saveLease(key.Group, r, longest)
}

// Lease returns the longest lease of the grants in a group that may still be in force, 0
// if there are none.
func (s *Store) Lease(key Key) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.load(key.Group)
	if err != nil || r.UID != key.UID {
		return 0, err
	}
	return r.Lease, nil
}

// LeaseExpired records that all grants for longer than lease have expired. It does
// nothing if the agent has left the group.
func (s *Store) LeaseExpired(key Key, lease time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.load(key.Group)
	if err != nil || r.UID != key.UID || r.List == nil {
		return err
	}
	return s.saveLease(key.Group, r, lease)
}

func (s *Store) saveLease(group string, r Record, lease time.Duration) error {
	if r.Lease == lease {
		return nil
	}
	r.Lease = lease
	return s.replace(group, r)
}
