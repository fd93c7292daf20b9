package control

import "time"

// Terms number the elections of a group. A term is an epoch and a counter. The operator and
// the agents derive the epoch from the time of day: it is the number of EpochDurations since
// the beginning of 2026.
const (
	// EpochDuration is the time between two epochs.
	EpochDuration = 40 * time.Millisecond
	// counterBits is the size of the counter in a term, as in package election, which the
	// operator doesn't import.
	counterBits = 4
	// MaxTerm is the MaxTerm of package election.
	MaxTerm = 1<<44 - 1
	// AcceptedSkew is the maximum difference between the clocks of two agents that
	// accept each other's connections, and between theirs and the operator's.
	AcceptedSkew = 30 * time.Second
)

// EpochAt returns the epoch at a time of day.
func EpochAt(t time.Time) int64 {
	start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	return int64(max(0, t.Sub(start)/EpochDuration))
}

// TermAt returns the highest term of the epoch at a time of day.
func TermAt(t time.Time) int64 { return lastOf(EpochAt(t)) }

func lastOf(epoch int64) int64 { return min((epoch+1)<<counterBits-1, MaxTerm) }

// NextFloor returns the floor of the next list, or of a list from which more members have
// departed, if the present floor is floor and the publisher's clock reads now. No process
// whose clock is ahead of that by at most AcceptedSkew has used a higher term.
//
// It is the NextFloor of package election, which explains it: while the clock of a process
// is behind the floor, its terms are ahead of its clock.
func NextFloor(floor int64, now time.Time) int64 {
	const (
		skew    = int64(AcceptedSkew / EpochDuration)
		catchUp = 30
	)
	next := EpochAt(now) + skew
	if floor > 0 {
		present := floor >> counterBits
		slowest := max(0, present-2*skew)
		next = max(next, present+1+max(0, next-slowest)/catchUp)
	}
	return lastOf(next)
}

// maxClockLead bounds how far the clock that made a revision may be ahead of the
// reader's.
const maxClockLead = 24 * time.Hour

// MaxRevision returns the highest revision that a valid document can have. A revision
// is a time in milliseconds, or slightly above one. A revision that is far ahead is an
// error or forged: an agent that accepted it would refuse every later document.
func MaxRevision(now time.Time) int64 { return now.Add(maxClockLead).UnixMilli() }
