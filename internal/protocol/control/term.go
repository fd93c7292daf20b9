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
)

// TermAt returns the current term at a time of day.
func TermAt(t time.Time) int64 {
	epoch := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	return int64(max(0, t.Sub(epoch)/TermDuration))
}
