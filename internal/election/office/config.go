package office

import (
	"errors"
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// Mode determines what a process needs to hold the office.
type Mode uint8

// The modes, as users write them.
const (
	// Available requires a won election only. Each side of a partition elects.
	Available Mode = iota
	// Majority requires grants of a majority. A grant to a process that is known to have ended is released at once.
	Majority
	// Strict requires grants of a majority. A grant is never released because its
	// holder is reported as ended: the lease must expire.
	Strict
)

var modeNames = [...]string{"Available", "Majority", "Strict"}

func (m Mode) String() string { return modeNames[m%3] }

// ModeNames returns the names of the modes.
func ModeNames() []string { return slices.Clone(modeNames[:]) }

// ParseMode returns the mode with the given name.
func ParseMode(name string) (Mode, error) {
	for i, n := range modeNames {
		if n == name {
			return Mode(i), nil
		}
	}
	return 0, fmt.Errorf("unknown safety mode %q: choose Available, Majority or Strict", name)
}

// Policy determines when a higher process takes over from a healthy coordinator.
type Policy uint8

// The policies.
const (
	// Always: as soon as the higher process is ready.
	Always Policy = iota
	// WhenStable: when the higher process has been ready for the stable period.
	WhenStable
	// NeverPreempt: not while the coordinator is healthy.
	NeverPreempt
)

// Config is the configuration of an office.
type Config struct {
	// Config configures the inner election. A Coordinator in it is believed to
	// hold the office in Term. If that is the process itself, it claims the office.
	election.Config
	// NewElection creates the inner election.
	NewElection func(election.Config) (election.Machine, error)

	Mode Mode
	// Lease is the longest one. The coordinator requests UsualLease, or Lease if that is 0, and a longer
	// one only if renewals are late: see pace.go.
	Lease, UsualLease election.Tick
	// Heartbeat is the longest time between two BEATs.
	Heartbeat election.Tick
	// CalmPeriod is how long no renewal may have been late before a lease that has grown becomes shorter.
	CalmPeriod election.Tick
	// AlignHeartbeats makes the coordinator send its BEATs at multiples of Heartbeat.
	// So all groups of a process send them at the same time, and share what that costs.
	AlignHeartbeats bool
	// SuspicionTimeout is the silence after which a process is suspected.
	SuspicionTimeout election.Tick
	// Stagger is how much longer a process waits before it starts an election for each live process above it.
	Stagger election.Tick
	Policy  Policy
	// StablePeriod is how long a higher process must have been ready, for
	// WhenStable. A process that stepped down takes over from no other one for that time.
	StablePeriod election.Tick
	// DrainTimeout is how long the application may take to stop.
	DrainTimeout election.Tick
	// LongTenure is how long a tenure must last so that it doesn't count as short: see
	// TenureRecord. 0 stands for a value that follows from the other durations.
	LongTenure election.Tick

	// Identity is that of the state directory of the process: see Machine.Forgetful.
	Identity election.Identity
	// Reserved is the highest term that the process may grant or claim, as its state directory says. A list comes with
	// a first block of terms. Forgotten is what earlier incarnations had reserved, if MemoryLost is set.
	Reserved, Forgotten election.Term
	// Life numbers the incarnations of the process. If a process begins again in the same one,
	// Term must be at least its ClaimedTerm: a life and a term identify a claim.
	Life uint32
	// MemoryLost reports that earlier incarnations have voted with this state directory, and the process doesn't
	// remember what it granted.
	MemoryLost bool
	// Memory is what the process nevertheless remembers of its grants, nil if nothing. There
	// are no grants in Available mode, so there it must be nil.
	Memory *grants.Memory
	// Tenures is what the process remembers of its tenures.
	Tenures TenureRecord
	// LongestEarlierLease is the longest lease for which an earlier incarnation may have granted, if that is longer than
	// Lease. It doesn't matter with a Memory, nor does EarlierEnded.
	LongestEarlierLease election.Tick
	// EarlierEnded is how long ago the earlier incarnations have ended at least. Their
	// grants expire so much sooner after Start.
	EarlierEnded election.Tick
	// Start is the present moment.
	Start election.Tick
	// OnTransition, if set, is called with each change of the role. Tests compare
	// these with the table in the package comment.
	OnTransition func(Transition)
}

func (c *Config) ledger() (l grants.Ledger) {
	switch {
	case c.Memory != nil:
		return c.restoredLedger()
	case c.MemoryLost && c.Mode != Available:
		l = grants.NewLedgerWithoutMemory(c.Lease, c.LongestEarlierLease, c.Forgotten, c.Start-c.EarlierEnded, c.Start)
	default:
		l = grants.NewLedger(c.Lease, c.Start)
	}
	l.Reserve(c.Reserved)
	l.Adopt(c.Roster.Version)
	return l
}

// claimed is the highest term in which the process may have claimed the office. In Available mode, it needs a higher
// one. In the others, the members know what they have granted.
func (c *Config) claimed() election.Term {
	if c.Mode == Available {
		return max(c.Term, c.Forgotten)
	}
	return c.Term
}

// restoredLedger returns the ledger of a process that remembers its grants. Its list may be newer than the one that it
// had then. If it has granted itself, the earlier incarnation has ended: that releases the grant as any other one does.
// In Strict the grant remains, because an application may act as coordinator until it expires.
func (c *Config) restoredLedger() grants.Ledger {
	l := grants.NewLedgerFrom(*c.Memory, c.Lease)
	l.Reserve(c.Reserved)
	l.Adopt(c.Roster.Version)
	if holder := l.Holder(c.Start); c.Mode == Majority && holder.ID == c.Self {
		l.ProcessEnded(holder, c.Start)
	}
	return l
}

// Validate returns an error if the configuration is invalid.
func (c *Config) Validate() error {
	if err := c.Config.Validate(); err != nil {
		return err
	}
	switch {
	case c.NewElection == nil:
		return errors.New("no inner election")
	case c.Mode > Strict:
		return fmt.Errorf("unknown safety mode %d", c.Mode)
	case c.Heartbeat <= 0:
		return fmt.Errorf("the heartbeat (%d ticks) must be positive", c.Heartbeat)
	case c.stretches() && c.CalmPeriod <= 0:
		return fmt.Errorf("the calm period (%d ticks) must be positive if leases grow", c.CalmPeriod)
	case c.SuspicionTimeout <= c.Heartbeat:
		return fmt.Errorf("the suspicion timeout (%d ticks) must be longer than a heartbeat (%d)",
			c.SuspicionTimeout, c.Heartbeat)
	case c.Mode != Available && c.Lease <= 2*c.Heartbeat:
		return fmt.Errorf("the lease (%d ticks) must be longer than two heartbeats (%d)", c.Lease, 2*c.Heartbeat)
	case c.UsualLease != 0 && (c.Mode != Available && c.UsualLease <= 2*c.Heartbeat || c.UsualLease > c.Lease):
		return fmt.Errorf(
			"the usual lease (%d ticks) must be longer than two heartbeats (%d), and at most the longest one (%d)",
			c.UsualLease, 2*c.Heartbeat, c.Lease)
	case c.Mode == Available && c.Memory != nil:
		return errors.New("there is no memory of grants in Available mode")
	case c.EarlierEnded < 0:
		return fmt.Errorf("the time since earlier incarnations ended (%d ticks) must not be negative", c.EarlierEnded)
	case min(c.Stagger, c.StablePeriod, c.DrainTimeout, c.LongTenure) < 0:
		return errors.New("the stagger, stable period, drain timeout and long tenure must not be negative")
	}
	return nil
}
