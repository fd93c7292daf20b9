// Package office is what an agent runs: one of the six elections, with what real
// networks and applications need around it. It is a Machine that wraps another.
//
// The election inside says who ought to be coordinator. The office is held by
// at most one process (Majority, Strict): whoever won asks all members for
// grants (package grants), by a BEAT that says so, and holds the office when a
// majority has answered. From then on its BEATs renew the grants, tell everyone
// who leads, and are the sign of life that everyone's detector waits for. In
// Available mode nobody grants anything and the winner holds the office at
// once; two may, in a partition.
//
//	winner                members
//	  | BEAT(term)  --------> |   may I?
//	  | <-------------- GRANT |   for a lease of my clock
//	  | BEAT(term, held) ---> |   I do: whoever hears it follows
//
// A coordinator that has fallen silent, or whose process has ended, is followed
// by the highest process that is believed alive: it starts an election at once,
// the others wait a moment that grows with their distance from the top.
//
// A process that comes back doesn't bully: it listens for BEATs, and the
// coordinator, which sees from the answers that a higher one is there and could
// stand, tells its application to stop, waits for that, and resigns in favour
// of it. Only then does the successor start.
//
// # What is not guaranteed
//
// Available mode has two coordinators while the network is divided. In Majority
// nobody leads while no majority is connected, nor, after the coordinator was
// cut off or stopped, for a lease. The clock assumptions are those of package
// grants.
package office

import (
	"errors"
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// Mode says what it takes to hold the office.
type Mode uint8

// The modes, as users write them.
const (
	// Available: winning the election. Every side of a partition elects.
	Available Mode = iota
	// Majority: grants of a majority. What was granted to a process that has
	// ended is free at once.
	Majority
	// Strict: grants of a majority, and a lease is always waited out.
	Strict
)

var modeNames = [...]string{"Available", "Majority", "Strict"}

func (m Mode) String() string { return modeNames[m%3] }

// ModeNames are the names of the modes.
func ModeNames() []string { return slices.Clone(modeNames[:]) }

// ParseMode finds a mode by its name.
func ParseMode(name string) (Mode, error) {
	for i, n := range modeNames {
		if n == name {
			return Mode(i), nil
		}
	}
	return 0, fmt.Errorf("unknown safety mode %q: choose Available, Majority or Strict", name)
}

// Policy says when a higher process takes over from a healthy coordinator.
type Policy uint8

// The policies.
const (
	// Always: as soon as it could stand.
	Always Policy = iota
	// WhenStable: when it could have stood for a while.
	WhenStable
	// NeverPreempt: not while the coordinator is well.
	NeverPreempt
)

// Config is what an office starts from.
type Config struct {
	// Config is the election's. A Coordinator in it is believed to hold the
	// office in Term; if it is the process itself, it claims the office.
	election.Config
	// NewElection makes the election inside.
	NewElection func(election.Config) (election.Machine, error)

	Mode  Mode
	Lease election.Tick
	// Heartbeat is the time between two BEATs; SuspicionTimeout the silence after which
	// a process is suspected.
	Heartbeat, SuspicionTimeout election.Tick
	// Stagger is how much longer a process waits with an election for each live
	// process above it.
	Stagger election.Tick
	Policy  Policy
	// StablePeriod is how long a higher process must have been able to stand, for
	// WhenStable; and how long one that stepped down stays away.
	StablePeriod election.Tick
	// DrainTimeout is how long the application may take to stop.
	DrainTimeout election.Tick

	Clock election.TermClock
	// Life tells this life of the process from its other ones.
	Life uint32
	// MemoryLost: the process has no memory of what it granted or was called before.
	MemoryLost bool
	// LongestEarlierLease, if it is longer than the Lease, is the longest lease for which a
	// MemoryLost process may have granted in a former life.
	LongestEarlierLease election.Tick
	// Start is now.
	Start election.Tick
}

func (c *Config) ledger() grants.Ledger {
	if c.MemoryLost {
		return grants.NewLedgerWithoutMemory(c.Lease, c.LongestEarlierLease, c.Clock, c.Start)
	}
	return grants.NewLedger(c.Lease, c.Clock, c.Start)
}

// Validate says what is wrong with the config.
func (c *Config) Validate() error {
	if err := c.Config.Validate(); err != nil {
		return err
	}
	switch {
	case c.NewElection == nil:
		return errors.New("no election to run")
	case c.Mode > Strict:
		return fmt.Errorf("unknown safety mode %d", c.Mode)
	case c.Heartbeat <= 0:
		return fmt.Errorf("the heartbeat (%d ticks) must be positive", c.Heartbeat)
	case c.SuspicionTimeout <= c.Heartbeat:
		return fmt.Errorf("the patience (%d ticks) must be longer than a heartbeat (%d)", c.SuspicionTimeout, c.Heartbeat)
	case c.Mode != Available && c.Lease <= 2*c.Heartbeat:
		return fmt.Errorf("the lease (%d ticks) must be longer than two heartbeats (%d)", c.Lease, 2*c.Heartbeat)
	case c.Stagger < 0 || c.StablePeriod < 0 || c.DrainTimeout < 0:
		return errors.New("stagger, stable and drain can't be negative")
	}
	return nil
}
