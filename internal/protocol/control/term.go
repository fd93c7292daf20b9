package control

import "time"

// Terms number the elections of a group. A term is the version of a member list and a counter, which numbers the
// elections under that list. These constants are those of package election, which the operator doesn't import.
const (
	counterBits = 16
	MaxVersion  = 1<<30 - 1
	MaxTerm     = (MaxVersion+1)<<counterBits - 1
)

// FirstTerm returns the lowest term of a list.
func FirstTerm(version uint32) int64 { return int64(version) << counterBits }

// VersionOf returns the version of the list to which a term belongs.
func VersionOf(term int64) uint32 {
	return uint32(min(max(0, term), MaxTerm) >> counterBits) //nolint:gosec // It is bounded.
}

// VersionAt returns the version that a list must have at least if it is published now: the seconds since the beginning
// of 2026. So the lists of a group exceed those of an earlier group of the same name, and of the same group before it
// was restored from a backup. A clock that is decades ahead must not use up the versions: then it returns 0.
func VersionAt(now time.Time) uint32 {
	const latest = 1 << 29
	start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	seconds := now.Unix() - start.Unix()
	if seconds < 0 || seconds > latest {
		return 0
	}
	return uint32(seconds)
}

// maxClockLead bounds how far the clock that made a revision may be ahead of the reader's.
const maxClockLead = 24 * time.Hour

// MaxRevision returns the highest revision that a valid document can have. A revision
// is a time in milliseconds, or slightly above one. A revision that is far ahead is an
// error or forged: an agent that accepted it would refuse every later document.
func MaxRevision(now time.Time) int64 { return now.Add(maxClockLead).UnixMilli() }
