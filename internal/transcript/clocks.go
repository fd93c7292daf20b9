package transcript

import (
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/journal"
)

// letter identifies a message.
type letter struct {
	from, to, kind string
	life           uint32
	term, lamport  uint64
}

func letterOf(m *journal.Message) letter {
	return letter{m.From, m.To, m.Kind, m.Life, m.Term, m.Lamport}
}

// received returns the message that a step received, or nil.
func received(s *journal.Step) *journal.Message {
	if inputKinds[s.Input] == election.Receive {
		return s.Message
	}
	return nil
}

// differences are the least differences, by pair of parts, between the time of receipt on the
// clock of the second part and the time of sending on the clock of the first. Clocks drift,
// so older and newer messages don't count.
type differences map[[2]int]time.Duration

func measure(parts []*part) differences {
	type origin struct {
		part int
		at   time.Time
	}
	sent := map[letter]origin{}
	for i, p := range parts {
		for _, s := range p.during() {
			for k := range s.Sent {
				sent[letterOf(&s.Sent[k])] = origin{i, s.At}
			}
		}
	}
	least := differences{}
	for i, p := range parts {
		for _, s := range p.during() {
			m := received(s)
			if m == nil {
				continue
			}
			from, known := sent[letterOf(m)]
			if !known || from.part == i {
				continue
			}
			pair, d := [2]int{from.part, i}, s.At.Sub(from.at)
			if before, measured := least[pair]; !measured || d < before {
				least[pair] = d
			}
		}
	}
	return least
}

// align estimates by how much the clock of each part is ahead of that of a reference. Parts
// that have exchanged no messages with others keep their times.
func align(parts []*part, reference int) []time.Duration {
	least := measure(parts)
	ahead, known := make([]time.Duration, len(parts)), make([]bool, len(parts))
	known[reference] = true
	for queue := []int{reference}; len(queue) > 0; queue = queue[1:] {
		a := queue[0]
		for b := range parts {
			if known[b] {
				continue
			}
			if difference, ok := least.between(a, b); ok {
				ahead[b], known[b] = ahead[a]+difference, true
				queue = append(queue, b)
			}
		}
	}
	return ahead
}

// between estimates by how much the clock of b is ahead of that of a. Clocks that no message
// contradicts, by arriving before it was sent, count as equal.
func (d differences) between(a, b int) (time.Duration, bool) {
	there, goes := d[[2]int{a, b}]
	back, returns := d[[2]int{b, a}]
	switch {
	case goes && returns && there >= 0 && back >= 0:
		return 0, true
	case goes && returns:
		return (there - back) / 2, true
	case goes:
		return min(0, there), true
	case returns:
		return max(0, -back), true
	}
	return 0, false
}
