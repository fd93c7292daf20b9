package state

import (
	"fmt"
	"time"
)

// RecordLease notes that the agent will grant for lease in a group whose list is kept.
// It returns the longest lease for which it may have granted before: whoever has
// that grant goes by that one. When it returns an error, nothing may be granted.
func (s *Store) RecordLease(of Key, lease time.Duration) (longest time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, found, err := s.load(of)
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, fmt.Errorf("no list of group %s is kept", of.Group)
	}
	longest = max(lease, time.Duration(file.LeaseMillis)*time.Millisecond)
	return longest, s.saveLease(of, file, longest)
}

// LeaseExpired notes that nothing is in force any more that was granted for longer than
// lease. A group that was forgotten meanwhile stays so.
func (s *Store) LeaseExpired(of Key, lease time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, found, err := s.load(of)
	if err != nil || !found {
		return err
	}
	return s.saveLease(of, file, lease)
}

func (s *Store) saveLease(of Key, file record, lease time.Duration) error {
	millis := lease.Milliseconds()
	if file.LeaseMillis == millis {
		return nil
	}
	file.LeaseMillis = millis
	if err := s.replace(of, file); err != nil {
		return fmt.Errorf("keep the lease of group %s: %w", of.Group, err)
	}
	return nil
}
