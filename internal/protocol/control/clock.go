package control

import "time"

// SecondsAt returns the seconds since the beginning of 2026, for memberlist.Facts.
func SecondsAt(now time.Time) int64 {
	return now.Unix() - time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
}

// maxClockLead bounds how far the clock that made a revision may be ahead of the reader's.
const maxClockLead = 24 * time.Hour

// MaxRevision returns the highest revision that a valid document can have. A revision
// is a time in milliseconds, or slightly above one. A revision that is far ahead is an
// error or forged: an agent that accepted it would refuse every later document.
func MaxRevision(now time.Time) int64 { return now.Add(maxClockLead).UnixMilli() }
