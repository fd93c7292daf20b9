package control

import "time"

// Terms number the elections of a group. The operator and the agents derive them
// from the time of day: the current term is the number of TermDurations since the
// epoch, 2026-01-01.
const (
	// TermDuration is the shortest time between two terms of a group.
	TermDuration = 100 * time.Millisecond
	// MaxTerm is the highest term that fits in a fencing token. It is the MaxTerm of
	// package election, which the operator doesn't import.
	MaxTerm = 1<<44 - 1
	// AcceptedSkew is the maximum difference between the clocks of two agents that
	// accept each other's connections, and between theirs and the operator's.
	AcceptedSkew = 30 * time.Second
)

// TermAt returns the current term at a time of day.
func TermAt(t time.Time) int64 {
	epoch := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	return int64(max(0, t.Sub(epoch)/TermDuration))
}

// NextFloor returns the floor of the next list, or of a list from which more members have
// departed, if the present floor is floor and the publisher's clock reads now. No process
// whose clock is ahead of that by at most AcceptedSkew has used a higher term.
//
// It is the NextFloor of package election, which explains it: while the clock of a process
// is behind the floor, its terms are ahead of its clock.
func NextFloor(floor int64, now time.Time) int64 {
	const (
		skew    = int64(AcceptedSkew / TermDuration)
		catchUp = 30
	)
	next := TermAt(now) + skew
	if floor > 0 {
		slowest := max(0, floor-2*skew)
		next = max(next, floor+1+max(0, next-slowest)/catchUp)
	}
	return min(next, MaxTerm)
}
