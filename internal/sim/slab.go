package sim

import (
	"math/bits"

	"github.com/conclave-dev/conclave/internal/election"
)

// slab keeps the messages in flight; places are used again.
//
// Its pages double in size and stay where they are: growing copies nothing and
// leaves no garbage behind, which matters where millions are in flight at once.
type slab struct {
	pages [][]election.Message
	// used is how many places have ever been given out.
	used uint32
	free []uint32
}

// firstPage is the size of the first page, as a power of two.
const firstPage = 6

// place is where a slot is: page k holds 1<<(firstPage+k) messages.
func (s *slab) at(slot uint32) *election.Message {
	n := slot + 1<<firstPage
	page := bits.Len32(n) - firstPage - 1
	return &s.pages[page][n-1<<(firstPage+page)]
}

func (s *slab) put(m *election.Message) uint32 {
	if last := len(s.free) - 1; last >= 0 {
		slot := s.free[last]
		s.free = s.free[:last]
		*s.at(slot) = *m
		return slot
	}
	if s.used == 1<<(firstPage+len(s.pages))-1<<firstPage {
		s.pages = append(s.pages, make([]election.Message, 1<<(firstPage+len(s.pages))))
	}
	slot := s.used
	s.used++
	*s.at(slot) = *m
	return slot
}

func (s *slab) take(slot uint32) election.Message {
	kept := s.at(slot)
	m := *kept
	kept.List = nil
	s.free = append(s.free, slot)
	return m
}

func (s *slab) reset() { s.used, s.free = 0, s.free[:0] }
