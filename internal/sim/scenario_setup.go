package sim

import (
	"cmp"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
)

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
	// firstCoordinator is the coordinator that all processes recognize at the start.
	// coordinatorCrashed is set if it is down.
	firstCoordinator   election.ID
	coordinatorCrashed bool
	// start is the time at which the cause of the election occurs.
	start      election.Tick
	maxPending int
	// electionMessages is the number of messages of elections in flight.
	electionMessages int
}

func (r *scenarioRun) hasOffice() bool { return r.scenario.Safety != "" }

func (r *scenarioRun) setUp() error {
	s := &r.scenario
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
	r.roster = roster
	r.firstCoordinator = election.ID(s.Processes)
	if s.Recover == r.firstCoordinator {
		r.firstCoordinator--
	}
	r.machines = make([]election.Machine, s.Processes+1)
	r.wakeAt = make([]election.Tick, s.Processes+1)
	r.crashed = make([]bool, s.Processes+1)
	for _, id := range s.Crashed {
		r.crashed[id] = true
	}
	r.coordinatorCrashed = r.crashed[r.firstCoordinator]
	for id := election.ID(1); int(id) <= s.Processes; id++ {
		r.wakeAt[id] = election.Never
		if r.crashed[id] && !r.forwards() {
			continue
		}
		if r.machines[id], err = r.machine(id); err != nil {
			return err
		}
		if r.crashed[id] {
			r.step(election.Input{Kind: election.BecomeIneligible}, id)
		}
		r.setTimer(id)
	}
	r.scheduleCauses()
	return nil
}

// forwards reports whether the control part of a crashed process still forwards messages.
func (r *scenarioRun) forwards() bool { return r.algorithm.DeadForward && !r.hasOffice() }

func (r *scenarioRun) machine(id election.ID) (election.Machine, error) {
	s := &r.scenario
	c := election.Config{
		Self: id, Roster: r.roster, Term: 1, Coordinator: r.firstCoordinator, Timing: election.DefaultTiming(s.Latency, 0),
	}
	if r.algorithm.Ring {
		c.Timing.Hop = 2*s.Latency + 1
	} else {
		// A takeover may wait for every process in between.
		c.Timing.Takeover = c.Timing.Reply * election.Tick(2+s.Processes)
	}
	if id == s.Recover {
		c.Coordinator = election.None
	}
	if !r.hasOffice() {
		return r.algorithm.New(c)
	}
	c.Term = firstTerm
	mode, err := office.ParseMode(s.Safety)
	if err != nil {
		return nil, err
	}
	heartbeat := r.heartbeat()
	oc := office.Config{
		Config: c, NewElection: r.algorithm.New, Mode: mode,
		Lease: 5 * heartbeat, Heartbeat: heartbeat, SuspicionTimeout: 3 * heartbeat,
		Stagger: cmp.Or(s.Stagger, 4*s.Latency), Policy: office.Always, DrainTimeout: 0, Life: 1, MemoryLost: id == s.Recover,
		Forgotten: firstTerm,
	}
	if id == s.Recover {
		oc.Term = 0
	}
	return office.New(oc)
}

func (r *scenarioRun) heartbeat() election.Tick {
	s := &r.scenario
	often := max(100*Millisecond, 4*s.Latency)
	if r.algorithm.Ring {
		// A shorter interval would make waiting processes start another election while
		// the messages of the first one are still on their way round the ring.
		often = max(often, 2*s.Latency*election.Tick(s.Processes))
	}
	return often
}

// scheduleCauses schedules the events that make the initiators start, or the process recover.
func (r *scenarioRun) scheduleCauses() {
	s := &r.scenario
	if r.hasOffice() {
		r.start = 10 * s.Latency // the coordinator acquires the office first
	}
	if s.Recover != election.None {
		r.queue.push(event{at: r.start, kind: eventInitiate, process: s.Recover})
		return
	}
	// The order in which the initiators are named doesn't matter: all start at once.
	for _, id := range slices.Sorted(slices.Values(s.Initiators)) {
		wait := election.Tick(0)
		if !r.hasOffice() {
			wait = s.Stagger * election.Tick(r.liveAbove(id))
		}
		r.queue.push(event{at: r.start + wait, kind: eventInitiate, process: id})
	}
}

// liveAbove returns how many processes of higher priority the process id believes alive.
func (r *scenarioRun) liveAbove(id election.ID) int {
	above := r.roster.Rank(id)
	if r.coordinatorCrashed && above > 0 {
		above--
	}
	return above
}
