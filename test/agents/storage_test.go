package agents

import (
	"errors"
	"fmt"
	"maps"
	"sync"
)

// errFenced means that the storage has received a higher token.
var errFenced = errors.New("the token is lower than the highest token of the storage")

// storage is the resource that a coordinator writes: registers that reject tokens lower
// than the highest one received.
type storage struct {
	mutex  sync.Mutex
	values map[int]int
	token  uint64
	// accepted are the accepted tokens with the client that used them, without
	// consecutive duplicates.
	accepted []acceptedToken
	writes   int
}

type acceptedToken struct {
	token  uint64
	client string
}

func newStorage() *storage { return &storage{values: map[int]int{}} }

// load returns a copy of the registers. From then on, the storage rejects lower tokens.
func (s *storage) load(token uint64, client string) (map[int]int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := s.checkToken(token, client); err != nil {
		return nil, err
	}
	return maps.Clone(s.values), nil
}

func (s *storage) write(token uint64, client string, register, value int) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := s.checkToken(token, client); err != nil {
		return err
	}
	s.values[register] = value
	s.writes++
	return nil
}

func (s *storage) checkToken(token uint64, client string) error {
	if token < s.token {
		return errFenced
	}
	s.token = token
	next := acceptedToken{token, client}
	if len(s.accepted) == 0 || s.accepted[len(s.accepted)-1] != next {
		s.accepted = append(s.accepted, next)
	}
	return nil
}

// verify checks that tokens never decreased, and that each was used by one client only.
func (s *storage) verify() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for i := 1; i < len(s.accepted); i++ {
		former, next := s.accepted[i-1], s.accepted[i]
		if next.token < former.token {
			return fmt.Errorf("the storage accepted token %d of %s after %d of %s", next.token, next.client, former.token, former.client)
		}
		if next.token == former.token {
			return fmt.Errorf("both %s and %s used token %d", former.client, next.client, next.token)
		}
	}
	return nil
}

func (s *storage) counts() (tenures, writes int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.accepted), s.writes
}
