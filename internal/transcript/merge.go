package transcript

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/journal"
)

type placed struct {
	*journal.Step

	part *part
	// at is on the clock of the reference. It never contradicts the order.
	at time.Time
	// cause is the step that sent the message that this one received, nil if there is none or its journal is missing.
	cause *placed
}

// merge orders the steps of all parts: those of one part keep their order, a message is
// received after it was sent, and otherwise the earlier step comes first.
func merge(parts []*part, ahead []time.Duration) []*placed {
	m := merger{parts: parts, ahead: ahead, next: make([]int, len(parts)), last: make([]time.Time,
		len(parts)), senders: map[letter]*placed{}}
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

// differences are the least differences, by pair of parts, between the time of receipt on the clock of the second part
// and the time of sending on the clock of the first. Clocks drift, so older and newer messages don't count.
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

type part struct {
	journal *journal.Journal
	// steps are those of the election, as far as this agent knew, and before and after them those until the neighboring
	// elections. It may have answered an agent that had lost the coordinator earlier, or received a message late. Others
	// have nothing to do with the election: see trim.
	steps []*journal.Step
	begin int
	// former and formerTerm are the coordinator that the agent knew before, "" if it knew none.
	former     string
	formerTerm uint64
	// coordinator and term are the result, "" if the agent knows none yet.
	coordinator string
	term        uint64
	// settled is the step in which the agent recognized the coordinator, or nil.
	settled *journal.Step
	// lost is the step in which the agent lost the former coordinator, or nil.
	lost  *journal.Step
	first bool
}

func (p *part) started() bool { return p.first && p.journal.Omitted == 0 }

// truncated reports whether older steps of the part may have been replaced.
func (p *part) truncated() bool { return p.first && p.journal.Omitted > 0 }

// cut divides a journal into elections. The steps between two of them are in both parts.
func cut(j *journal.Journal) []*part {
	var parts []*part
	p, between := &part{journal: j, first: true}, 0
	for i := range j.Steps {
		s := &j.Steps[i]
		if p.settled != nil && p.ends(s) {
			parts = append(parts, p)
			p = &part{journal: j, former: p.coordinator, formerTerm: p.term, steps: slices.Clone(
				p.steps[between:]), begin: len(p.steps) - between}
		}
		p.steps = append(p.steps, s)
		if p.lost == nil && p.settled == nil && loses(s, p.former) {
			p.lost = s
		}
		if e := recognition(s); e != nil && p.settled == nil {
			p.coordinator, p.term, p.settled = e.Peer, e.Term, s
			between = len(p.steps)
		}
	}
	if len(p.steps) > 0 {
		parts = append(parts, p)
	}
	return parts
}

// ends reports whether a step belongs to the next election: the agent loses its coordinator, or recognizes another one.
func (p *part) ends(s *journal.Step) bool {
	e := recognition(s)
	return loses(s, p.coordinator) || e != nil && (e.Term != p.term || e.Peer != p.coordinator)
}

func (p *part) during() []*journal.Step {
	const shortly = 10 * time.Second
	steps := p.steps[p.begin:]
	if p.settled == nil {
		return steps
	}
	end := p.settled.At.Add(shortly)
	if i := slices.IndexFunc(steps, func(s *journal.Step) bool { return s.At.After(end) }); i >= 0 {
		return steps[:i]
	}
	return steps
}

// recognition returns the event by which the agent recognizes a coordinator, or nil.
func recognition(s *journal.Step) *journal.Event {
	for i := range s.Events {
		switch e := &s.Events[i]; eventKinds[e.Kind] {
		case election.Recognized, election.TenureStarted:
			return e
		default:
		}
	}
	return nil
}

// loses reports whether the agent of a step loses this coordinator, which may be itself, or learns that it is going to.
func loses(s *journal.Step, coordinator string) bool {
	if coordinator == "" {
		return false
	}
	if inputKinds[s.Input] == election.Ended && s.Peer == coordinator {
		return true
	}
	if m := s.Message; m != nil && messageKinds[m.Kind] == election.Resigned && m.From == coordinator {
		return true
	}
	return slices.ContainsFunc(s.Events, func(e journal.Event) bool {
		switch eventKinds[e.Kind] {
		case election.MarkedCrashed:
			return e.Peer == coordinator
		case election.TenureLost, election.StopRequested, election.OfficeResigned:
			return true
		default:
			return false
		}
	})
}

// The kinds by their names.
var (
	inputKinds   = byName[election.InputKind]()
	eventKinds   = byName[election.EventKind]()
	messageKinds = byName[election.Kind]()
)

type kind interface {
	~uint8
	String() string
}

func byName[K kind]() map[string]K {
	kinds := map[string]K{}
	unknown := K(255).String()
	for k := range K(255) {
		if name := k.String(); name != unknown {
			kinds[name] = k
		}
	}
	return kinds
}

// Check returns an error if a journal contains something that this program doesn't know: then
// its agent is newer. It also refuses a journal that no agent of ours writes.
func Check(j *journal.Journal) error {
	for i := range j.Steps {
		s := &j.Steps[i]
		if _, known := inputKinds[s.Input]; !known {
			return newerError(s.Input)
		}
		if inputKinds[s.Input] == election.Receive && s.Message == nil {
			return errors.New("its journal is malformed: a message was received, but is missing")
		}
		for _, e := range s.Events {
			if _, known := eventKinds[e.Kind]; !known {
				return newerError(e.Kind)
			}
		}
		messages := s.Sent
		if s.Message != nil {
			messages = append([]journal.Message{*s.Message}, s.Sent...)
		}
		for k := range messages {
			if _, known := messageKinds[messages[k].Kind]; !known {
				return newerError(messages[k].Kind)
			}
		}
	}
	return nil
}

func newerError(kind string) error {
	return fmt.Errorf("its agent is newer than this plugin, which doesn't know %.40q: update the plugin", kind)
}
