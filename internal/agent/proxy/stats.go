package proxy

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Stats count the connections of a group.
type Stats struct {
	FailedDials            atomic.Uint64
	Connections, Waiting   atomic.Int64 // at present; those that wait are in both
	Ended                  [ReasonCount]atomic.Uint64
	FromClients, ToClients atomic.Uint64 // in bytes

	mu     sync.Mutex
	waits  []control.Wait // for the last coordinators, the oldest first
	inVain uint64         // those that were given up while there was no coordinator, since the last one
}

// maxWaits is about how many elections a journal has.
const maxWaits = 32

// begin notes a coordinator.
func (s *Stats) begin(term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.waits); n == 0 || s.waits[n-1].Term != term {
		s.waits = append(s.waits[max(0, n+1-maxWaits):], control.Wait{Term: term, InVain: s.inVain})
		s.inVain = 0
	}
}

// wait notes how a connection waited for a coordinator.
func (s *Stats) wait(w control.Wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.waits {
		if s.waits[i].Term == w.Term {
			s.waits[i].Add(&w)
			return
		}
	}
	s.inVain += w.InVain
}

// Waits returns how connections waited for the last coordinators.
func (s *Stats) Waits() []control.Wait {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.waits)
}

// Report returns what users see of the connections.
func (s *Stats) Report() *control.Connections {
	ended := func(why Reason) uint64 { return s.Ended[why].Load() }
	waiting := s.Waiting.Load()
	return &control.Connections{
		Open: max(0, s.Connections.Load()-waiting), Waiting: waiting, // A new one counts as waiting first.
		WaitedInVain: ended(WaitedInVain), Reset: ended(CoordinatorChanged), Refused: ended(TooMany) + ended(TooSlow),
		FailedDials: s.FailedDials.Load(),
	}
}

// Reason is why a connection has ended.
type Reason uint32

// The reasons.
const (
	Completed          Reason = iota // Both ends have closed it.
	Broken                           // One end has reset it, or doesn't respond.
	CoordinatorChanged               // Its coordinator lost the office.
	WaitedInVain                     // No coordinator's application accepted it in time.
	TooMany                          // There were too many connections.
	TooSlow                          // One end took no bytes, as too many others.
	Stopped                          // The agent doesn't carry connections any more.

	ReasonCount // the number of reasons
)

func (r Reason) String() string {
	return [...]string{
		"completed", "broken", "coordinator_changed", "waited_in_vain", "too_many", "too_slow", "stopped",
	}[r]
}
