package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// Microsecond is a tick of the simulator's clock.
const (
	Microsecond election.Tick = 1
	Millisecond               = 1000 * Microsecond
)

// MaxProcesses is how many processes a scenario may have, and MaxOffices how
// many with a safety mode, where each of them keeps a record of every other.
const (
	MaxProcesses = 100_000
	MaxOffices   = 2_000
)

// maxLatency keeps every deadline of the largest scenario within a Tick.
const maxLatency = 3600 * 1000 * Millisecond

// Scenario is one election without any fault but those it names: the textbook's
// situation. Process i has priority i.
type Scenario struct {
	Algorithm string
	Processes int
	// Ring is the order of the ring; empty is ascending.
	Ring []election.ID
	// Crashed are the processes that are down. Only the coordinator's crash is
	// known, and only to the initiators.
	Crashed    []election.ID
	Initiators []election.ID
	// Recover is a process that was down and comes back; everyone else is up and
	// agrees on its coordinator. None when an election is to be seen.
	Recover election.ID
	// Latency is what a message takes from one process to another.
	Latency election.Tick
	// Stagger is how much longer an initiator waits for each live process above
	// it. 0 is the textbook: all start at once; with a safety mode, it stands for
	// what the agent does by itself.
	Stagger election.Tick
	// Safety: an empty one is the bare election; a mode wraps it as in the agent.
	Safety string
	// Watch, if set, is told of every step.
	Watch func(Step)
}

// Step is what one process did with one input; in a schedule, it may instead be
// something that goes wrong.
type Step struct {
	// Fault says what goes wrong, if anything: then there is no input.
	Fault   string
	At      election.Tick
	Process election.ID
	Input   election.Input
	// Output is valid during the call only.
	Output *election.Output
}

// Outcome is how a scenario ended.
type Outcome struct {
	Algorithm string
	Processes int
	// Coordinator is whom the live processes agree on, or the highest of those
	// that they name.
	Coordinator election.ID
	Agreed      bool
	Messages    map[election.Kind]int
	Total       int
	// Skipped are attempts to reach successors that don't respond.
	Skipped int
	// Elapsed is the time from the start until the last process knew.
	Elapsed election.Tick
	// Views are what each live process knows at the end, by ID.
	Views []View
}

// View is what one process knows.
type View struct {
	Process election.ID
	Down    bool
	Status  election.Status
	rows    func([]election.Row) []election.Row
	encode  func([]byte, election.Tick) []byte
}

// AppendState appends to b what the process's machine knows, such that processes
// with equal states have equal status tables. It takes far less time than Rows.
func (v View) AppendState(b []byte) []byte {
	if v.encode == nil {
		return b
	}
	return v.encode(b, 0)
}

// Rows is the process's status table, highest rank first.
func (v View) Rows() []election.Row {
	if v.rows == nil {
		return nil
	}
	return v.rows(nil)
}

// InputError says what is wrong with a scenario, and what would be right.
type InputError struct{ Reason string }

func (e *InputError) Error() string { return e.Reason }

func inputErrorf(format string, args ...any) error {
	return &InputError{Reason: fmt.Sprintf(format, args...)}
}

// Validate says what is wrong with the scenario.
func (s *Scenario) Validate() error {
	if _, err := catalog.Find(s.Algorithm); err != nil {
		return inputErrorf("%v", err)
	}
	if err := s.ValidateSize(); err != nil {
		return err
	}
	if s.Safety != "" {
		if _, err := office.ParseMode(s.Safety); err != nil {
			return inputErrorf("%v", err)
		}
		if s.Processes > MaxOffices {
			return inputErrorf("with a safety mode processes must be from 1 to %d, not %d", MaxOffices, s.Processes)
		}
	}
	if s.Latency <= 0 || s.Latency > maxLatency {
		return inputErrorf("the latency must be from 1µs to 1h")
	}
	if s.Stagger < 0 || s.Stagger > maxLatency {
		return inputErrorf("the stagger must be from 0 to 1h")
	}
	if err := s.validateRing(); err != nil {
		return err
	}
	if err := s.validateList("crashed", s.Crashed); err != nil {
		return err
	}
	if err := s.validateList("initiators", s.Initiators); err != nil {
		return err
	}
	return s.validateCase()
}

// ValidateSize says what is wrong with the number of processes alone.
func (s *Scenario) ValidateSize() error {
	if s.Processes < 1 || s.Processes > MaxProcesses {
		return inputErrorf("processes must be from 1 to %d, not %d", MaxProcesses, s.Processes)
	}
	return nil
}

func (s *Scenario) validateRing() error {
	if len(s.Ring) == 0 {
		return nil
	}
	if err := s.validateList("ring", s.Ring); err != nil {
		return err
	}
	if len(s.Ring) != s.Processes {
		return inputErrorf("the ring must name each of the %d processes once, it names %d", s.Processes, len(s.Ring))
	}
	return nil
}

func (s *Scenario) validateList(name string, list []election.ID) error {
	seen := slices.Clone(list)
	slices.Sort(seen)
	for i, id := range seen {
		if id < 1 || int(id) > s.Processes {
			return inputErrorf("%s: there is no process of priority %d; priorities are 1 to %d", name, id, s.Processes)
		}
		if i > 0 && seen[i-1] == id {
			return inputErrorf("%s: priority %d is named twice; name it once", name, id)
		}
	}
	return nil
}

func (s *Scenario) validateCase() error {
	if s.Recover != election.None {
		if int(s.Recover) > s.Processes {
			return inputErrorf("recover: there is no process of priority %d; priorities are 1 to %d", s.Recover, s.Processes)
		}
		if len(s.Crashed) > 0 || len(s.Initiators) > 0 {
			return inputErrorf("recover goes without crashed and initiators: everyone else is up, and nobody starts an election")
		}
		if s.Processes == 1 {
			return inputErrorf("recover needs at least 2 processes: someone must have stayed up")
		}
		return s.validateCost()
	}
	if len(s.Crashed) == s.Processes {
		return inputErrorf("everyone is crashed: leave at least one process up")
	}
	for _, id := range s.Initiators {
		if slices.Contains(s.Crashed, id) {
			return inputErrorf("initiators: process %d is down; choose one that is up", id)
		}
	}
	if len(s.Initiators) == 0 {
		return inputErrorf("nobody starts an election: name initiators, or a process to recover")
	}
	return s.validateCost()
}

// Run runs a scenario to its end.
func Run(s Scenario) (Outcome, error) {
	if err := s.Validate(); err != nil {
		return Outcome{}, err
	}
	algorithm, err := catalog.Find(s.Algorithm)
	if err != nil {
		return Outcome{}, err
	}
	t := &scenarioRun{
		scenario: s, algorithm: algorithm, counts: make([]int, len(election.Kinds())+1),
		maxPending: maxInFlight,
	}
	if err := t.setUp(); err != nil {
		return Outcome{}, err
	}
	if err := t.run(); err != nil {
		return Outcome{}, err
	}
	return t.outcome(), nil
}

// textbook is a scenario that runs.
type scenarioRun struct {
	scenario     Scenario
	algorithm    catalog.Algorithm
	roster       *election.Roster
	machines     []election.Machine // by ID; nil: down
	crashed      []bool             // by ID
	wakeAt       []election.Tick
	queue        queue
	slab         slab
	out          election.Output
	counts       []int
	skipped      int
	lastChangeAt election.Tick
	// leader is whom all believe in at the start; lost is that its crash is what
	// the election is about.
	initial        election.ID
	initialCrashed bool
	// start is when the cause of the election occurs.
	start election.Tick
	// maxPending is how many events may wait at once.
	maxPending int
	// elections in flight: messages that count.
	electionMessages int
}

// wrapped reports whether the election runs within an office.
func (t *scenarioRun) hasOffice() bool { return t.scenario.Safety != "" }

func (t *scenarioRun) setUp() error {
	s := &t.scenario
	ring := make([]election.Member, s.Processes)
	for i := range ring {
		id := election.ID(i + 1)
		if len(s.Ring) > 0 {
			id = s.Ring[i]
		}
		ring[i] = election.Member{ID: id, Priority: election.Priority(id)}
	}
	roster, err := election.NewRoster(1, ring)
	if err != nil {
		return err
	}
	t.roster = roster
	t.initial = election.ID(s.Processes)
	if s.Recover == t.initial {
		t.initial--
	}
	t.machines = make([]election.Machine, s.Processes+1)
	t.wakeAt = make([]election.Tick, s.Processes+1)
	t.crashed = make([]bool, s.Processes+1)
	for _, id := range s.Crashed {
		t.crashed[id] = true
	}
	t.initialCrashed = t.crashed[t.initial]
	for id := election.ID(1); int(id) <= s.Processes; id++ {
		t.wakeAt[id] = election.Never
		if t.crashed[id] && !t.forwards() {
			continue
		}
		if t.machines[id], err = t.machine(id); err != nil {
			return err
		}
		if t.crashed[id] {
			t.step(election.Input{Kind: election.BecomeIneligible}, id)
		}
		t.setTimer(id)
	}
	t.scheduleCauses()
	return nil
}

// forwards reports whether the control part of a crashed process still forwards.
func (t *scenarioRun) forwards() bool { return t.algorithm.DeadForward && !t.hasOffice() }

func (t *scenarioRun) machine(id election.ID) (election.Machine, error) {
	s := &t.scenario
	c := election.Config{
		Self: id, Roster: t.roster, Term: 1, Coordinator: t.initial, Timing: election.DefaultTiming(s.Latency, 0),
	}
	if t.algorithm.Ring {
		c.Timing.Hop = 2*s.Latency + 1
	} else {
		// The takeover may have to wait for every process in between.
		c.Timing.Takeover = c.Timing.Reply * election.Tick(2+s.Processes)
	}
	if id == s.Recover {
		c.Coordinator = election.None
	}
	if !t.hasOffice() {
		return t.algorithm.New(c)
	}
	mode, err := office.ParseMode(s.Safety)
	if err != nil {
		return nil, err
	}
	heartbeat := t.heartbeat()
	oc := office.Config{
		Config: c, NewElection: t.algorithm.New, Mode: mode, Lease: 5 * heartbeat, Heartbeat: heartbeat, SuspicionTimeout: 3 * heartbeat,
		Stagger: cmp.Or(s.Stagger, 4*s.Latency), Policy: office.Always, DrainTimeout: 0, Life: 1, MemoryLost: id == s.Recover,
	}
	if id == s.Recover {
		oc.Term = 0
	}
	return office.New(oc)
}

// heartbeat is how often a holder of the office is heard.
func (t *scenarioRun) heartbeat() election.Tick {
	s := &t.scenario
	often := max(100*Millisecond, 4*s.Latency)
	if t.algorithm.Ring {
		// Or those who wait start anew while what they wait for goes round.
		often = max(often, 2*s.Latency*election.Tick(s.Processes))
	}
	return often
}

// begin puts the causes of the election into the queue.
func (t *scenarioRun) scheduleCauses() {
	s := &t.scenario
	if t.hasOffice() {
		t.start = 10 * s.Latency // the coordinator has to hold the office first
	}
	if s.Recover != election.None {
		t.queue.push(event{at: t.start, kind: eventInitiate, process: s.Recover})
		return
	}
	// They start in the same instant: in which order they were named says nothing.
	for _, id := range slices.Sorted(slices.Values(s.Initiators)) {
		wait := election.Tick(0)
		if !t.hasOffice() {
			wait = s.Stagger * election.Tick(t.liveAbove(id))
		}
		t.queue.push(event{at: t.start + wait, kind: eventInitiate, process: id})
	}
}

// liveAbove is how many processes above id it believes alive.
func (t *scenarioRun) liveAbove(id election.ID) int {
	above := t.roster.Rank(id)
	if t.initialCrashed && above > 0 {
		above--
	}
	return above
}
