package sim

import (
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// Microsecond is one tick of the simulator's clock.
const (
	Microsecond = transcript.Microsecond
	Millisecond = 1000 * Microsecond
)

// MaxProcesses is the most processes of a scenario, and MaxOffices the most with a
// safety mode, where each process stores a record of every other one.
const (
	MaxProcesses = 100_000
	MaxOffices   = 2_000
)

// maxLatency is small enough for every deadline of the largest scenario to fit in a Tick.
const maxLatency = 3600 * 1000 * Millisecond

// Scenario is one election as the textbooks describe it: the only faults are the
// crashes that it names. Process i has priority i.
type Scenario struct {
	Algorithm string
	Processes int
	// Ring is the order of the ring, by default ascending.
	Ring []election.ID
	// Crashed are the processes that are down. The initiators know of the
	// coordinator's crash. Other crashes are unknown to all processes.
	Crashed    []election.ID
	Initiators []election.ID
	// Recover is a process that was down and recovers, or None. All other processes are up and agree on a coordinator.
	Recover election.ID
	// Latency is the time that a message takes from one process to another.
	Latency election.Tick
	// Stagger is the additional time that an initiator waits for each live process of higher priority. With 0, all
	// initiators start at once, as in the textbooks. With a safety mode, 0 selects a default, as in the agent.
	Stagger election.Tick
	// Safety is the mode of the offices around the election, or "" for the election without offices.
	Safety string
	// Watch, if set, is called after every step.
	Watch func(transcript.Step)
}

// Outcome is the result of a scenario.
type Outcome struct {
	Algorithm string
	Processes int
	// Coordinator is the one that the live processes agree on. If they don't agree,
	// it is the highest that one of them recognizes.
	Coordinator election.ID
	Agreed      bool
	Messages    map[election.Kind]int
	Total       int
	// Skipped counts the messages to ring successors that don't respond. Total doesn't include them.
	Skipped int
	// Elapsed is the time from the start until the last process learned of the coordinator.
	Elapsed election.Tick
	// Views are the final views of the processes, by ID.
	Views []View
}

// View is the state of one process.
type View struct {
	Process election.ID
	Down    bool
	Status  election.Status
	rows    func([]election.Row) []election.Row
}

// Rows returns the process's status table, highest rank first.
func (v View) Rows() []election.Row {
	if v.rows == nil {
		return nil
	}
	return v.rows(nil)
}

// Run runs a scenario to its end. It returns an *InputError for a scenario that is invalid or too large.
func Run(s Scenario) (Outcome, error) {
	if err := s.Validate(); err != nil {
		return Outcome{}, err
	}
	algorithm, err := catalog.Find(s.Algorithm)
	if err != nil {
		return Outcome{}, err
	}
	r := &scenarioRun{
		scenario: s, algorithm: algorithm, counts: make([]int, len(election.Kinds())+1),
		maxPending: maxInFlight,
	}
	if err := r.setUp(); err != nil {
		return Outcome{}, err
	}
	if err := r.run(); err != nil {
		return Outcome{}, err
	}
	return r.outcome(), nil
}

// InputError is an invalid input of the user. Its reason states what is wrong and what would be valid.
type InputError struct{ Reason string }

func (e *InputError) Error() string { return e.Reason }

func inputErrorf(format string, args ...any) error {
	return &InputError{Reason: fmt.Sprintf(format, args...)}
}

// Validate returns an *InputError if the scenario is invalid.
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
		return inputErrorf("latency must be from 1µs to 1h, not %dµs", s.Latency)
	}
	if s.Stagger < 0 || s.Stagger > maxLatency {
		return inputErrorf("stagger must be from 0 to 1h, not %dµs", s.Stagger)
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

// ValidateSize returns an *InputError if the number of processes is invalid.
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
			return inputErrorf(
				"recover excludes crashed and initiators: all other processes are up, and none of them starts an election")
		}
		if s.Processes == 1 {
			return inputErrorf("recover needs at least 2 processes: another one must be up")
		}
		return s.validateCost()
	}
	if len(s.Crashed) == s.Processes {
		return inputErrorf("all processes are crashed: leave at least one up")
	}
	for _, id := range s.Initiators {
		if slices.Contains(s.Crashed, id) {
			return inputErrorf("initiators: process %d is down; choose one that is up", id)
		}
	}
	if len(s.Initiators) == 0 {
		return inputErrorf("no process starts an election: name initiators, or a process to recover")
	}
	return s.validateCost()
}

// The limits of a scenario. One that is too large ends with an error before it uses up the memory.
const (
	maxSteps    = 200_000_000
	maxInFlight = 10_000_000
	// maxRingMessages is the most hops of messages that pass all the way round a ring.
	maxRingMessages = 50_000_000
)

// validateCost rejects scenarios in which the message of every process passes all
// the way round a large ring. They would reach the limits only after minutes.
func (s *Scenario) validateCost() error {
	live := s.Processes - len(s.Crashed)
	cost := 0
	switch s.Algorithm {
	case "RingAllIDs":
		cost = live * s.Processes
	case "RingActiveList":
		if s.Recover == election.None || int(s.Recover) == s.Processes { // other processes only send an INQUIRY
			cost = live * live
		}
	}
	if s.Safety != "" {
		cost *= s.Processes / 20 // every step of an office visits all peers
	}
	if cost > maxRingMessages {
		return inputErrorf(
			"%s with %d processes takes too many messages: choose fewer processes, or RingChampion or RingSkip",
			s.Algorithm, s.Processes)
	}
	return nil
}
