package sim

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// Exploration is a small world of which every interleaving is visited: any
// message may be the next to arrive, any process may crash at any step, and time
// passes when nothing is on its way.
//
// It begins with all processes in agreement on the highest.
type Exploration struct {
	Algorithm string
	Processes int
	// Safety: an empty one explores the bare election, a mode the office around it.
	Safety string
	// Crashes, Restarts and Losses are how many of each may happen.
	Crashes, Restarts, Losses int
	// CrashOnlyWhenIdle: processes of a bare election crash only between elections, as
	// seed 000 assumes. They come back only then in any case.
	CrashOnlyWhenIdle bool
	// Horizon bounds the virtual time of an office, which beats for ever.
	Horizon election.Tick
	// StatesMax ends an exploration that is too large; 0 is without bound.
	StatesMax int
}

// Explored is what an exploration found.
type Explored struct {
	States, Transitions, TerminalStates int
	// Complete: all states were visited.
	Complete  bool
	Violation *Violation
	// Path are the choices that led to the violation.
	Path []string
}

const (
	exploreTransMax election.Tick = 1
	// termsPerLife are more terms than the processes of a small world use.
	termsPerLife               = 100
	bootAge      election.Tick = 1 << 20
)

// Explore visits every state.
func Explore(ctx context.Context, x Exploration) (Explored, error) {
	algorithm, err := catalog.Find(x.Algorithm)
	if err != nil {
		return Explored{}, inputErrorf("%v", err)
	}
	if x.Processes < 1 || x.Processes > 6 {
		return Explored{}, inputErrorf("a world that is explored has 1 to 6 processes, not %d", x.Processes)
	}
	e := &explorer{ctx: ctx, x: x, algorithm: algorithm, numbers: map[uint64]int32{}, seed: maphash.MakeSeed()}
	start, err := e.begin()
	if err != nil {
		return Explored{}, err
	}
	e.found.Complete = true
	e.visit(start, 0, "")
	e.found.States = len(e.numbers)
	if e.found.Complete && e.found.Violation == nil {
		e.findDeadEnd()
	}
	return e.found, nil
}

type explorer struct {
	ctx       context.Context //nolint:containedctx // lives as long as the call that it is given to
	x         Exploration
	algorithm catalog.Algorithm
	roster    *election.Roster
	// seen numbers the states.
	numbers map[uint64]int32
	graph   stateGraph
	seed    maphash.Seed
	found   Explored
	out     election.Output
	encoded []byte
}

// systemState is the state of a small world.
type systemState struct {
	now      election.Tick
	machines []election.Machine // by ID
	lives    []uint32
	up       []bool
	// links hold what is on its way, by sender and addressee.
	links                     [][]election.Message
	crashes, restarts, losses int
	token                     election.Token
	violation                 *Violation
	// cut: more would happen, but beyond the horizon.
	truncated bool
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
		machines: make([]election.Machine, n+1), lives: make([]uint32, n+1), up: make([]bool, n+1),
		links:   make([][]election.Message, (n+1)*(n+1)),
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

// machine makes a process: one that agrees, or one that remembers nothing.
func (e *explorer) machine(s *systemState, id election.ID, fresh bool) (election.Machine, error) {
	s.lives[id]++
	c := election.Config{Self: id, Roster: e.roster, Timing: election.DefaultTiming(exploreTransMax, 0)}
	c.Timing.Takeover = c.Timing.Reply * election.Tick(2+e.x.Processes)
	if !fresh {
		c.Term, c.Coordinator = 1, election.ID(e.x.Processes)
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
		Policy: office.Always, DrainTimeout: 1, Life: s.lives[id], MemoryLost: fresh, Start: s.now,
		// Each life may use terms above all of the one before. How much further the
		// clock has come makes no difference: a state is encoded without the time.
		Clock: election.TermClock{AtBoot: termsPerLife * election.Term(s.lives[id]-1), Boot: s.now - bootAge, TicksPerTerm: 1},
	})
}

// visit goes on from a state along every choice, unless it was seen. It returns
// the state's number.
func (e *explorer) visit(s *systemState, origin int32, choice string) int32 {
	number, isNew := e.number(s)
	if !isNew {
		return number
	}
	e.graph.add(origin, choice, e.agreed(s))
	if e.ctx.Err() != nil || e.x.StatesMax > 0 && len(e.numbers) > e.x.StatesMax {
		e.found.Complete = false
		return number
	}
	moves := e.choices(s)
	if len(moves) == 0 && !s.truncated {
		e.found.TerminalStates++
		e.end(s, number)
	}
	for _, m := range moves {
		next := s.copy()
		name := m(e, next)
		e.found.Transitions++
		if next.violation != nil {
			e.found.Violation, e.found.Path = next.violation, append(e.graph.path(int(number)), name)
			return number
		}
		to := e.visit(next, number, name)
		if e.found.Violation != nil || !e.found.Complete {
			return number
		}
		if next.faultsLeft() == s.faultsLeft() {
			e.graph.connect(number, to)
		}
	}
	return number
}

// budget is how much may still go wrong.
func (s *systemState) faultsLeft() int { return s.crashes + s.restarts + s.losses }

// number is the state's, and whether it is new.
func (e *explorer) number(s *systemState) (number int32, isNew bool) {
	b := e.encoded[:0]
	for id, m := range s.machines {
		if id == 0 {
			continue
		}
		b = election.AppendFlag(b, s.up[id])
		b = election.AppendNumber(b, uint64(s.lives[id]))
		if s.up[id] {
			b = m.Encode(b, s.now)
		}
	}
	for _, link := range s.links {
		b = election.AppendNumber(b, uint64(len(link)))
		for i := range link {
			b = encodeMessage(b, &link[i], s.now)
		}
	}
	for _, n := range [...]int{s.crashes, s.restarts, s.losses} {
		b = election.AppendNumber(b, uint64(n))
	}
	b = election.AppendNumber(b, uint64(s.token))
	e.encoded = b
	key := maphash.Bytes(e.seed, b)
	if number, known := e.numbers[key]; known {
		return number, false
	}
	number = int32(len(e.numbers))
	e.numbers[key] = number
	return number, true
}

func encodeMessage(b []byte, m *election.Message, now election.Tick) []byte {
	for _, n := range [...]uint64{
		uint64(m.Kind), uint64(m.Term), uint64(m.Subject), uint64(m.Origin), uint64(m.Hops),
		uint64(now - m.Hold.Sent), uint64(m.Hold.Life), uint64(m.Hold.RequesterLife), uint64(m.Hold.HighestGranted),
		uint64(m.Hold.Version),
	} {
		b = election.AppendNumber(b, n)
	}
	b = election.AppendFlag(b, m.Hold.Held)
	b = election.AppendFlag(b, m.Hold.Ready)
	b = election.AppendFlag(b, m.Hold.Ineligible)
	return election.IDs(m.List).Encode(b)
}

// copy shares what isn't changed: a machine is cloned when it takes a step, a
// link when it changes.
func (s *systemState) copy() *systemState {
	c := *s
	c.machines, c.lives, c.up = slices.Clone(s.machines), slices.Clone(s.lives), slices.Clone(s.up)
	c.links = slices.Clone(s.links)
	return &c
}

// best is the highest process that lives.
func (e *explorer) best(s *systemState) election.ID {
	for _, m := range e.roster.Ranked() {
		if s.up[m.ID] {
			return m.ID
		}
	}
	return election.None
}

// end checks a state in which nothing can happen any more.
func (e *explorer) end(s *systemState, number int32) {
	best := e.best(s)
	for id := 1; id <= e.x.Processes; id++ {
		if !s.up[id] {
			continue
		}
		if got := s.machines[id].Status().Coordinator; got != best {
			e.found.Violation = &Violation{
				Invariant: "agreement",
				Detail:    fmt.Sprintf("at the end process %d follows %d, not %d, the highest that lives", id, got, best),
			}
			e.found.Path = e.graph.path(int(number))
			return
		}
	}
}
