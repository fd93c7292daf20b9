package transcript

import (
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/journal"
)

type placed struct {
	*journal.Step

	part *part
	// at is on the clock of the reference. It never contradicts the order.
	at time.Time
	// cause is the step that sent the message that this one received, nil if there is none
	// or its journal is missing.
	cause *placed
}

// merge orders the steps of all parts: those of one part keep their order, a message is
// received after it was sent, and otherwise the earlier step comes first.
func merge(parts []*part, ahead []time.Duration) []*placed {
	m := merger{parts: parts, ahead: ahead, next: make([]int, len(parts)), last: make([]time.Time, len(parts)), senders: map[letter]*placed{}}
	pending := map[letter]bool{}
	total := 0
	for _, p := range parts {
		total += len(p.steps)
		for _, s := range p.steps {
			for i := range s.Sent {
				pending[letterOf(&s.Sent[i])] = true
			}
		}
	}
	order := make([]*placed, 0, total)
	for len(order) < total {
		s := m.place(m.choose(pending))
		for i := range s.Sent {
			sent := letterOf(&s.Sent[i])
			m.senders[sent] = s
			delete(pending, sent)
		}
		order = append(order, s)
	}
	return order
}

type merger struct {
	parts []*part
	ahead []time.Duration
	// next is the index of the next step of each part, and last the time of the one before.
	next []int
	last []time.Time
	// senders has the step that sent each message.
	senders map[letter]*placed
}

// choose returns the part whose next step is the earliest of those that don't wait for a
// message. If all wait for each other, which correct journals don't, it ignores that.
func (m *merger) choose(pending map[letter]bool) int {
	chosen, anyway := -1, -1
	for i, p := range m.parts {
		if m.next[i] == len(p.steps) {
			continue
		}
		if anyway < 0 || m.at(i).Before(m.at(anyway)) {
			anyway = i
		}
		got := received(p.steps[m.next[i]])
		if got != nil && pending[letterOf(got)] {
			continue
		}
		if chosen < 0 || m.at(i).Before(m.at(chosen)) {
			chosen = i
		}
	}
	if chosen < 0 {
		return anyway
	}
	return chosen
}

// at is the time of the next step of a part, on the clock of the reference.
func (m *merger) at(i int) time.Time {
	at := m.parts[i].steps[m.next[i]].At.Add(-m.ahead[i])
	if at.Before(m.last[i]) {
		return m.last[i]
	}
	return at
}

func (m *merger) place(i int) *placed {
	s := &placed{Step: m.parts[i].steps[m.next[i]], part: m.parts[i], at: m.at(i)}
	if got := received(s.Step); got != nil {
		s.cause = m.senders[letterOf(got)]
	}
	if s.cause != nil && s.at.Before(s.cause.at) {
		s.at = s.cause.at
	}
	m.last[i] = s.at
	m.next[i]++
	return s
}

type letter struct {
	from, to, kind string
	life           uint32
	term, lamport  uint64
}

func letterOf(m *journal.Message) letter {
	return letter{m.From, m.To, m.Kind, m.Life, m.Term, m.Lamport}
}

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
