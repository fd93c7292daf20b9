package tracecheck

import "slices"

// These numbers are those of the format: TestNumbersAreThoseOfTheFormat compares them with the core's.
const (
	receive, adopt, ended, reserved                  = 2, 11, 12, 16
	tenureStarted, tenureLost, officeResigned        = 9, 10, 12
	beat, grant, deny, resigned, probe               = 13, 14, 15, 16, 17
	available, majority, strict                      = 0, 1, 2
	counterBits, counterMask, placeBits              = 16, 1<<16 - 1, 7
	block                                     uint64 = 64
)

// header is the first line of a trace, as far as the rules depend on it.
type header struct {
	Agent  string
	Origin int64
	Names  []string
	Office struct {
		settings
		Self, Coordinator, Life                  uint32
		Term, Reserved, Identity                 uint64
		Start, EarlierEnded, LongestEarlierLease int64
		MemoryLost                               bool
		Memory                                   *struct{}
		Roster                                   *list
	}
}

type settings struct {
	Mode  uint8
	Lease int64
}

// list is a member list. Its processes have numbers that only this trace gives them.
type list struct {
	Version  uint32
	Ring     []listed
	Previous *list
	Departed []uint32
}

type listed struct {
	ID, Priority uint32
	Identity     uint64
}

// step is each further line.
type step struct {
	Kind       uint8
	Peer, Life uint32
	Now        int64
	Term       uint64
	Message    message
	Roster     *list
	Names      []string
	Settings   *settings
	Send       []message
	Events     []happening
	Status     status
}

type happening struct {
	Kind        uint8
	Term, Token uint64
}

// ends reports whether the tenure of a term has ended.
func (h happening) ends(term uint64) bool {
	return (h.Kind == tenureLost || h.Kind == officeResigned) && h.Term == term
}

type message struct {
	Kind          uint8
	From, To      uint32
	Term, Lamport uint64
	Hold          hold
}

type hold struct {
	Sent, Lease             int64
	Life, RequesterLife     uint32
	Version                 uint32
	HighestGranted          uint64
	Abstains, Settled, Held bool
}

type status struct {
	Coordinator uint32
	Term, Token uint64
	Until       int64
}

func (l *list) place(id uint32) int {
	return slices.IndexFunc(l.Ring, func(m listed) bool { return m.ID == id })
}

func (l *list) has(id uint32) bool { return l != nil && l.place(id) >= 0 }

// continues reports whether a member of the previous list is the same voter in this one.
func (l *list) continues(id uint32) bool {
	if !l.Previous.has(id) || !l.has(id) {
		return l.Previous.has(id)
	}
	before, after := l.Previous.Ring[l.Previous.place(id)].Identity, l.Ring[l.place(id)].Identity
	return before == 0 || before == after
}

// majority returns until when the grants of a majority last.
func (l *list) majority(until func(uint32) int64) int64 {
	var ends []int64
	for _, m := range l.Ring {
		ends = append(ends, until(m.ID))
	}
	slices.Sort(ends)
	return ends[(len(ends)-1)/2]
}
