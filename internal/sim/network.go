package sim

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election"
)

// links are which ones are cut, and what is on its way on them.
type network struct {
	cuts        [maxMembers + 1]uint32
	lastArrival [maxMembers + 1][maxMembers + 1]election.Tick
	maxID       election.ID
}

func (l *network) reset() {
	for i := range l.cuts[:l.maxID+1] {
		l.cuts[i] = 0
		clear(l.lastArrival[i][:l.maxID+1])
	}
	l.maxID = 0
}

func (l *network) isCut(from, to election.ID) bool { return l.cuts[from]>>to&1 != 0 }

func (l *network) cut(from, to election.ID) {
	l.maxID = max(l.maxID, from, to)
	l.cuts[from] |= 1 << to
}

func (l *network) heal() { clear(l.cuts[:]) }

// fifoArrival is the moment at which a message can arrive behind those before it.
func (l *network) fifoArrival(from, to election.ID, at election.Tick) election.Tick {
	l.maxID = max(l.maxID, from, to)
	at = max(at, l.lastArrival[from][to])
	l.lastArrival[from][to] = at
	return at
}

// divide cuts the network in two.
func (s *simulation) partition() {
	sides := s.rng.next()
	if s.watch != nil {
		s.reportFault(election.None, "the network divides: %s", s.sides(sides))
	}
	for a := election.ID(1); a <= s.maxID; a++ {
		for b := election.ID(1); b <= s.maxID; b++ {
			if (sides>>a^sides>>b)&1 != 0 {
				s.network.cut(a, b)
			}
		}
	}
}

// sides names the processes on either side.
func (s *simulation) sides(of uint64) string {
	var two [2][]election.ID
	for id := election.ID(1); id <= s.maxID; id++ {
		two[of>>id&1] = append(two[of>>id&1], id)
	}
	return fmt.Sprintf("%s | %s", FormatRanges(two[0]), FormatRanges(two[1]))
}
