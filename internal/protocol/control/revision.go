package control

import "time"

// ahead is how far the clock that a revision was made by may be ahead of another.
const ahead = 24 * time.Hour

// NewestRevision is the highest that a document can honestly have. A revision is a
// time in milliseconds, or a few above one. One that is far ahead is a mistake or a
// lie: whoever took it would take nothing that comes after it.
func NewestRevision(now time.Time) int64 { return now.Add(ahead).UnixMilli() }
