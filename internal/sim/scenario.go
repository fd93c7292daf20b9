package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
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

// maxLatency is small enough for every deadline of the largest scenario to fit in
// a Tick.
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
	// Recover is a process that was down and recovers, or None. All other processes
	// are up and agree on a coordinator.
	Recover election.ID
	// Latency is the time that a message takes from one process to another.
	Latency election.Tick
	// Stagger is the additional time that an initiator waits for each live process
	// of higher priority. With 0, all initiators start at once, as in the textbooks.
	// With a safety mode, 0 selects a default, as in the agent.
	Stagger election.Tick
	// Safety is the mode of the offices around the election, or "" for the election
	// without offices.
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
	// Skipped counts the messages to ring successors that don't respond. Total
	// doesn't include them.
	Skipped int
	// Elapsed is the time from the start until the last process learned of the
	// coordinator.
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

// Run runs a scenario to its end. It returns an *InputError for a scenario that is
// invalid or too large.
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
