package agents

import (
	"errors"
	"fmt"
	"maps"
	"sync"
)

// errFenced: the storage has seen a higher token.
var errFenced = errors.New("the token is older than one that the storage has seen")

// storage is the resource that a coordinator guards: registers that can be
// written with a token, and not with one that is lower than the highest so far.
type storage struct {
	mutex  sync.Mutex
	values map[int]int
	token  uint64
	// accepted are the tokens that came with an accepted request, each as often as
	// its bearer changed.
	accepted []acceptance
	writes   int
}

type acceptance struct {
	token  uint64
	bearer string
}

func newStorage() *storage { return &storage{values: map[int]int{}} }

// load fences off lower tokens, and returns all that is stored.
func (s *storage) load(token uint64, bearer string) (map[int]int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := s.admit(token, bearer); err != nil {
		return nil, err
	}
	return maps.Clone(s.values), nil
}

func (s *storage) write(token uint64, bearer string, register, value int) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := s.admit(token, bearer); err != nil {
		return err
	}
	s.values[register] = value
	s.writes++
	return nil
}

func (s *storage) admit(token uint64, bearer string) error {
	if token < s.token {
		return errFenced
	}
	s.token = token
	next := acceptance{token, bearer}
	if len(s.accepted) == 0 || s.accepted[len(s.accepted)-1] != next {
		s.accepted = append(s.accepted, next)
	}
	return nil
}

// verify tells whether tokens came in order, and each from one application only.
func (s *storage) verify() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for i := 1; i < len(s.accepted); i++ {
		former, next := s.accepted[i-1], s.accepted[i]
		if next.token < former.token {
			return fmt.Errorf("the storage took token %d of %s after %d of %s", next.token, next.bearer, former.token, former.bearer)
		}
		if next.token == former.token {
			return fmt.Errorf("both %s and %s came with token %d", former.bearer, next.bearer, next.token)
		}
	}
	return nil
}

func (s *storage) counts() (tenures, writes int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.accepted), s.writes
}
