package group

import "errors"

// Leader is who leads a group, as its agent knew when it was asked. It is what
// the local API answers, word for word.
type Leader struct {
	Group string `json:"group"`
	Self  string `json:"self"`
	// Coordinator is empty while there is none.
	Coordinator string `json:"coordinator"`
	// Leading: this process is the coordinator, and may act as such.
	Leading bool `json:"leading"`
	// Priority is the coordinator's.
	Priority uint32 `json:"priority"`
	Term     uint64 `json:"term"`
	// Token is the fencing token, 0 unless Leading.
	Token uint64 `json:"token"`
	// RemainingMillis is how long the tenure lasts at least if it isn't renewed.
	// It is there while Leading, but not in Available mode, where nothing ends it.
	RemainingMillis *int64 `json:"remainingMillis,omitempty"`
}

// following is the same for somebody who may not act.
func (l Leader) following() Leader {
	l.Leading, l.Token, l.RemainingMillis = false, 0, nil
	return l
}

// Process is a row of the process status table.
type Process struct {
	Name     string `json:"name"`
	Priority uint32 `json:"priority"`
	// Status is Coordinator, Normal or Crashed.
	Status    string `json:"status"`
	Address   string `json:"address"`
	Connected bool   `json:"connected"`
}

// Status is all that a group's agent knows.
type Status struct {
	Leader

	Electing  bool      `json:"electing"`
	Algorithm string    `json:"algorithm"`
	Safety    string    `json:"safety"`
	Version   uint32    `json:"version"`
	Processes []Process `json:"processes"`
}

// Change is a state that a group went through. IDs tell the lives of an agent
// apart.
type Change struct {
	ID     string
	Leader Leader
}

// SessionEventKind is the kind of a SessionEvent.
type SessionEventKind string

// The kinds of events that an application gets to know in its session.
const (
	// Lead: it may act as coordinator, in Term, with Token.
	Lead SessionEventKind = "lead"
	// Stop: it must stop, and say so; then the office goes to Successor.
	Stop SessionEventKind = "stop"
	// Lost: the tenure is over. It must have stopped.
	Lost SessionEventKind = "lost"
)

// SessionEvent is what an application is told.
type SessionEvent struct {
	Kind      SessionEventKind `json:"-"`
	Term      uint64           `json:"term"`
	Token     uint64           `json:"token,omitempty"`
	Successor string           `json:"successor,omitempty"`
}

// What can be wrong with a request.
var (
	// ErrClosed: the agent no longer takes part in the group.
	ErrClosed = errors.New("the agent has left the group")
	// ErrWatcherTooSlow: a watcher has fallen too far behind.
	ErrWatcherTooSlow = errors.New("too many changes at once: watch again")
	// ErrNoSession: the application speaks of a session that isn't open.
	ErrNoSession = errors.New("there is no such session")
	// ErrWrongTerm: the application said that it stopped acting in a term that it wasn't told to stop in.
	ErrWrongTerm = errors.New("nobody waits for a stop in this term")
	// ErrNotLeading: only the coordinator can step down.
	ErrNotLeading = errors.New("this process is not the coordinator")
	// ErrNoSuccessor: the office can't be handed to the one who was named, or to anyone.
	ErrNoSuccessor = errors.New("nobody is ready to take over")
	// ErrHandOverTimeout: the office was offered and not taken in time.
	ErrHandOverTimeout = errors.New("nobody has taken over in time")
)
