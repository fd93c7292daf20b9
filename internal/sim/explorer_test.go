package sim

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// Exploration describes a small group of which every interleaving is visited: any message in flight may be the next to
// arrive, any process may crash at any step, and time passes when no message is in flight.
//
// In the initial state, all processes agree that the highest is the coordinator.
type Exploration struct {
	Algorithm string
	Processes int
	// Safety is the mode of the offices, or "" for the election without offices.
	Safety string
	// Crashes, Restarts and Losses are the most crashes, restarts and lost messages.
	Crashes, Restarts, Losses int
	// CrashOnlyWhenIdle restricts the crashes of an election without offices to times at which no election runs, as
	// [Textbook] assumes. Restarts are always so restricted.
	CrashOnlyWhenIdle bool
	// Rounds limits how far messages overtake each other: all messages that are in flight at one time form a round, and
	// the messages that are sent meanwhile arrive after that round. In a round, any message may be the next to arrive.
	// Without this limit, the search also visits every state in which the answer to one message arrives before another
	// message that was sent earlier.
	Rounds bool
}

// Explored is the result of an Exploration.
type Explored struct {
	States, Transitions, TerminalStates int
	Violation                           *Violation
	// Path describes the moves that lead to the violation.
	Path []string
}

const (
	exploreTransMax election.Tick = 1
	// termsPerLife exceeds the number of terms that one incarnation uses.
	termsPerLife = 1000
)

// Explore visits every reachable state and checks the invariants.
func Explore(x Exploration) (Explored, error) {
	algorithm, err := catalog.Find(x.Algorithm)
	if err != nil {
		return Explored{}, inputErrorf("%v", err)
	}
	if x.Processes < 1 || x.Processes > 6 {
		return Explored{}, inputErrorf("an exploration must have 1 to 6 processes, not %d", x.Processes)
	}
	e := &explorer{x: x, algorithm: algorithm, numbers: map[uint64]int32{}, hashSeed: maphash.MakeSeed()}
	start, err := e.begin()
	if err != nil {
		return Explored{}, err
	}
	e.visit(start, 0, "")
	e.found.States = len(e.numbers)
	if e.found.Violation == nil {
		e.findDeadEnd()
	}
	return e.found, nil
}

// explorer runs one Exploration.
type explorer struct {
	x         Exploration
	algorithm catalog.Algorithm
	roster    *election.Roster
	// numbers has the number of each visited state, by the hash of its encoding.
	numbers  map[uint64]int32
	graph    stateGraph
	hashSeed maphash.Seed
	found    Explored
	out      election.Output
	encoded  []byte
}

// systemState is the state of all processes and links.
type systemState struct {
	now          election.Tick
	machines     []election.Machine // by ID
	incarnations []uint32
	up           []bool
	// links has the messages in flight of each link, by sender and receiver. The first
	// inRound of a link belong to the present round.
	links                     [][]election.Message
	inRound                   []int
	crashes, restarts, losses int
	token                     election.Token
	violation                 *Violation
}

func (e *explorer) begin() (*systemState, error) {
	n := e.x.Processes
	ring := make([]election.Member, n)
	for i := range ring {
		ring[i] = election.Member{ID: election.ID(i + 1), Priority: election.Priority(i + 1)}
	}
	var err error
	if e.roster, err = election.NewRoster(1, ring); err != nil {
		return nil, err
	}
	s := &systemState{
		machines: make([]election.Machine, n+1), incarnations: make([]uint32, n+1), up: make([]bool, n+1),
		links: make([][]election.Message, (n+1)*(n+1)), inRound: make([]int, (n+1)*(n+1)),
		crashes: e.x.Crashes, restarts: e.x.Restarts, losses: e.x.Losses,
	}
	for id := 1; id <= n; id++ {
		s.up[id] = true
		if s.machines[id], err = e.machine(s, election.ID(id), false); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// machine creates the Machine of a process. If it has lost its memory, it doesn't know the coordinator.
func (e *explorer) machine(s *systemState, id election.ID, memoryLost bool) (election.Machine, error) {
	s.incarnations[id]++
	c := election.Config{Self: id, Roster: e.roster, Timing: election.DefaultTiming(exploreTransMax, 0)}
	c.Timing.Takeover = c.Timing.Reply * election.Tick(2+e.x.Processes)
	if !memoryLost {
		c.Term, c.Coordinator = 1, election.ID(e.x.Processes)
		if e.x.Safety != "" {
			c.Term = firstTerm
		}
	}
	if e.x.Safety == "" {
		return e.algorithm.New(c)
	}
	mode, err := office.ParseMode(e.x.Safety)
	if err != nil {
		return nil, inputErrorf("%v", err)
	}
	return office.New(office.Config{
		Config: c, NewElection: e.algorithm.New, Mode: mode, Lease: 12, Heartbeat: 4, SuspicionTimeout: 6, Stagger: 2,
		LongTenure: 1, // The age of a tenure would make nearly equal states different.
		Policy:     office.Always, DrainTimeout: 1, Life: s.incarnations[id], MemoryLost: memoryLost, Start: s.now,
		// Each incarnation uses terms above all of the previous one.
		Reserved: election.LastTerm(1), Forgotten: firstTerm + termsPerLife*election.Term(s.incarnations[id]-1),
	})
}

// visit visits a state and all that are reachable from it, unless it was visited
// before. It returns the number of the state.
func (e *explorer) visit(s *systemState, foundFrom int32, foundBy string) int32 {
	number, isNew := e.number(s)
	if !isNew {
		return number
	}
	e.graph.add(foundFrom, foundBy, e.agreed(s))
	moves := e.moves(s)
	if len(moves) == 0 {
		e.found.TerminalStates++
		e.checkTerminal(s, number)
	}
	for _, m := range moves {
		next := s.copy()
		name := m(e, next)
		if e.x.Rounds {
			next.beginRound()
		}
		e.found.Transitions++
		if next.violation != nil {
			e.found.Violation, e.found.Path = next.violation, append(e.graph.path(int(number)), name)
			return number
		}
		to := e.visit(next, number, name)
		if e.found.Violation != nil {
			return number
		}
		if next.faultsLeft() == s.faultsLeft() {
			e.graph.connect(number, to)
		}
	}
	return number
}

// faultsLeft returns how many faults may still happen.
func (s *systemState) faultsLeft() int { return s.crashes + s.restarts + s.losses }

// number returns the number of a state, and whether the state is new.
func (e *explorer) number(s *systemState) (number int32, isNew bool) {
	b := e.encoded[:0]
	for id, m := range s.machines {
		if id == 0 {
			continue
		}
		b = election.AppendFlag(b, s.up[id])
		b = election.AppendNumber(b, uint64(s.incarnations[id]))
		if s.up[id] {
			b = m.Encode(b, s.now)
		}
	}
	for i, link := range s.links {
		b = election.AppendNumber(b, uint64(len(link)))
		b = election.AppendNumber(b, uint64(s.inRound[i]))
		for j := range link {
			b = e.encodeMessage(b, &link[j], s.now)
		}
	}
	for _, n := range [...]int{s.crashes, s.restarts, s.losses} {
		b = election.AppendNumber(b, uint64(n))
	}
	b = election.AppendNumber(b, uint64(s.token))
	e.encoded = b
	key := maphash.Bytes(e.hashSeed, b)
	if number, known := e.numbers[key]; known {
		return number, false
	}
	number = int32(len(e.numbers))
	e.numbers[key] = number
	return number, true
}

// encodeMessage appends a message to b. It omits what doesn't affect its receiver: the
// moment of a request counts only in a grant and in the request itself, and the highest
// granted term only in an answer to a probe, because there is only one member list.
func (e *explorer) encodeMessage(b []byte, m *election.Message, now election.Tick) []byte {
	sent, highest, elections := now-m.Hold.Sent, m.Hold.HighestGranted, m.Hold.ElectionTerm
	if m.Kind != election.Grant && m.Kind != election.Beat || e.x.Safety == office.Available.String() {
		sent = 0
	}
	if m.Kind != election.Probe {
		highest, elections = 0, 0
	}
	for _, n := range [...]uint64{
		uint64(m.Kind), uint64(m.Term), uint64(m.Subject), uint64(m.Origin), uint64(m.Hops),
		uint64(sent), uint64(m.Hold.Life), uint64(m.Hold.RequesterLife), uint64(highest), uint64(elections),
		uint64(m.Hold.Version),
	} {
		b = election.AppendNumber(b, n)
	}
	b = election.AppendFlag(b, m.Hold.Held)
	b = election.AppendFlag(b, m.Hold.Ready)
	b = election.AppendFlag(b, m.Hold.Ineligible)
	return election.IDs(m.List).Encode(b)
}

// copy returns a copy that shares the Machines and the contents of the links. A
// Machine is cloned before its next step, a link when it changes.
func (s *systemState) copy() *systemState {
	c := *s
	c.machines, c.incarnations, c.up = slices.Clone(s.machines), slices.Clone(s.incarnations), slices.Clone(s.up)
	c.links, c.inRound = slices.Clone(s.links), slices.Clone(s.inRound)
	return &c
}

// best returns the highest live process, or None.
func (e *explorer) best(s *systemState) election.ID {
	for _, m := range e.roster.Ranked() {
		if s.up[m.ID] {
			return m.ID
		}
	}
	return election.None
}

// checkTerminal checks a state without successors.
func (e *explorer) checkTerminal(s *systemState, number int32) {
	best := e.best(s)
	for id := 1; id <= e.x.Processes; id++ {
		if !s.up[id] {
			continue
		}
		if got := s.machines[id].Status().Coordinator; got != best {
			e.found.Violation = &Violation{
				Invariant: "agreement",
				Detail: fmt.Sprintf("in a terminal state process %d follows %d, not %d, the highest live process",
					id, got, best),
			}
			e.found.Path = e.graph.path(int(number))
			return
		}
	}
}
