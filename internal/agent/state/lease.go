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
	r, found, err := s.load(key)
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, fmt.Errorf("cannot store the lease of group %s: the group has no stored list", key.Group)
	}
	longest = max(lease, time.Duration(r.LeaseMillis)*time.Millisecond)
	return longest, s.saveLease(key, r, longest)
}

// Lease returns the longest lease of the grants in a group that may still be in force, 0
// if there are none.
func (s *Store) Lease(key Key) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _, err := s.load(key)
	return time.Duration(r.LeaseMillis) * time.Millisecond, err
}

// LeaseExpired records that all grants for longer than lease have expired. It does
// nothing if the group has been removed.
func (s *Store) LeaseExpired(key Key, lease time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, found, err := s.load(key)
	if err != nil || !found {
		return err
	}
	return s.saveLease(key, r, lease)
}

func (s *Store) saveLease(key Key, r record, lease time.Duration) error {
	millis := lease.Milliseconds()
	if r.LeaseMillis == millis {
		return nil
	}
	r.LeaseMillis = millis
	if err := s.replace(key, r); err != nil {
		return fmt.Errorf("cannot store the lease of group %s: %w", key.Group, err)
	}
	return nil
}
