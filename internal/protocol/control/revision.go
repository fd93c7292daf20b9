package control

import "time"

// maxClockLead bounds how far the clock that made a revision may be ahead of the
// reader's.
const maxClockLead = 24 * time.Hour

// MaxRevision returns the highest revision that a valid document can have. A revision
// is a time in milliseconds, or slightly above one. A revision that is far ahead is an
// error or forged: an agent that accepted it would refuse every later document.
func MaxRevision(now time.Time) int64 { return now.Add(maxClockLead).UnixMilli() }
