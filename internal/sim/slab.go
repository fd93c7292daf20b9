package sim

import (
	"math/bits"

	"github.com/conclave-dev/conclave/internal/election"
)

// slab stores the messages in flight and reuses their slots.
//
// Each page is twice as large as the one before, and pages never move. Growing
// therefore copies nothing and leaves no garbage, which matters with millions of
// messages in flight.
type slab struct {
	pages [][]election.Message
	// used is the number of slots that were ever used.
	used uint32
	free []uint32
}

// firstPage is the binary logarithm of the size of the first page.
const firstPage = 6

// at returns the location of a slot: page k has 1<<(firstPage+k) messages.
func (s *slab) at(slot uint32) *election.Message {
	n := slot + 1<<firstPage
	page := bits.Len32(n) - firstPage - 1
	return &s.pages[page][n-1<<(firstPage+page)]
}

// put stores a message and returns its slot.
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

// take removes and returns the message of a slot.
func (s *slab) take(slot uint32) election.Message {
	stored := s.at(slot)
	m := *stored
	stored.List = nil
	s.free = append(s.free, slot)
	return m
}

func (s *slab) reset() { s.used, s.free = 0, s.free[:0] }
