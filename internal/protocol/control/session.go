package control

import (
	"fmt"
	"time"
)

// SessionStatus is what an agent reports of an open session of its application, on request.
type SessionStatus struct {
	// Leads: it was asked to lead, and hasn't confirmed that it has stopped.
	Leads    bool      `json:"leads"`
	OpenedAt time.Time `json:"openedAt"`
	// RenewedAt is when it last asked whether it leads, and zero before the first time. RenewedMillisAgo
	// is how long ago that was, whatever the clock of the reader.
	RenewedAt        time.Time `json:"renewedAt,omitzero"`
	RenewedMillisAgo *int64    `json:"renewedMillisAgo,omitempty"`
}

// String describes the session, as in "leads, opened 2026-11-20 12:37:12 UTC, last renewed 0.2 s ago".
func (s *SessionStatus) String() string {
	state, renewed := "waits", "never renewed"
	if s.Leads {
		state = "leads"
	}
	switch {
	case s.RenewedMillisAgo != nil:
		renewed = fmt.Sprintf("last renewed %.1f s ago", float64(*s.RenewedMillisAgo)/1000)
	case !s.RenewedAt.IsZero(): // The agent is too old to say more.
		renewed = "last renewed " + formatTime(s.RenewedAt)
	}
	return fmt.Sprintf("%s, opened %s, %s", state, formatTime(s.OpenedAt), renewed)
}

func formatTime(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }
