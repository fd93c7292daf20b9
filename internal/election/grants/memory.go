package grants

import "github.com/conclave-dev/conclave/internal/election"

// Memory is what a member has to remember of its grants over a restart of its process. It is everything in a Ledger
// except for the lease and the reservation, which the new process has anyway, and the deferred request. Losing that is
// like losing a message: its sender repeats it.
//
// Moments are on the member's clock. It has to continue, so that the promises of the
// earlier incarnation last exactly as long as they would have.
type Memory struct {
	SilentUntil                     election.Tick
	Forgotten                       election.Term
	Holder                          Holder
	Term                            election.Term
	Until                           election.Tick
	Version                         uint32
	Renewed                         bool
	OlderUntil                      election.Tick
	HighestGranted, PreviousHighest election.Term
}

// Memory returns what the member has to remember. If a message depends on the ledger, the
// memory must be safe before the message is sent, and before the application acts as
// coordinator because of a grant. Otherwise it must not be used after a restart.
func (l *Ledger) Memory() Memory {
	return Memory{
		SilentUntil: l.silentUntil, Forgotten: l.forgotten,
		Holder: l.holder, Term: l.term, Until: l.until, Version: l.version, Renewed: l.renewed, OlderUntil: l.olderUntil,
		HighestGranted: l.highestGranted, PreviousHighest: l.previousHighest,
	}
}

// NewLedgerFrom returns the ledger of a member that remembers what earlier incarnations
// granted. It continues as if the process had not ended.
func NewLedgerFrom(m Memory, lease election.Tick) Ledger {
	return Ledger{
		lease:       lease,
		silentUntil: m.SilentUntil, forgotten: m.Forgotten,
		holder: m.Holder, term: m.Term, until: m.Until, version: m.Version, renewed: m.Renewed, olderUntil: m.OlderUntil,
		highestGranted: m.HighestGranted, previousHighest: m.PreviousHighest,
	}
}

// Shifted returns the memory with moments on a clock that is ahead by a number of ticks.
func (m Memory) Shifted(ahead election.Tick) Memory {
	m.SilentUntil += ahead
	m.Until += ahead
	m.OlderUntil += ahead
	return m
}
