package group

import (
	"errors"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Leader is the coordinator of a group, as the agent knows it. The local API returns it unchanged.
type Leader struct {
	Group string `json:"group"`
	Self  string `json:"self"`
	// Coordinator is empty while there is none.
	Coordinator string `json:"coordinator"`
	// Leading: this process is the coordinator, and may act as such.
	Leading bool `json:"leading"`
	// HandsOver: the application of the coordinator, another process, has been asked to stop.
	HandsOver bool `json:"-"`
	// Priority is the priority of the coordinator.
	Priority uint32 `json:"priority"`
	Term     uint64 `json:"term"`
	// Token is the fencing token. It is 0 unless Leading.
	Token uint64 `json:"token"`
	// RemainingMillis is the minimum remaining duration of the tenure, if it isn't renewed. It is set while Leading,
	// except in mode Available, which has no lease, and for a session that was asked to stop, while it stops.
	RemainingMillis *int64 `json:"remainingMillis,omitempty"`
}

// following returns the same state for a caller that may not act as coordinator.
func (l Leader) following() Leader {
	l.Leading, l.Token, l.RemainingMillis = false, 0, nil
	return l
}

// Process is a row of the process status table.
type Process struct {
	control.Row

	Address string `json:"address"`
	// Ineligible is why this agent's own process may not be elected, or empty.
	Ineligible string `json:"ineligible,omitempty"`
}

// Status is the complete state of a group, as the agent knows it.
type Status struct {
	Leader

	Electing  bool      `json:"electing"`
	Algorithm string    `json:"algorithm"`
	Safety    string    `json:"safety"`
	Version   uint32    `json:"version"`
	Processes []Process `json:"processes"`
	// Timing is that of the settings in force.
	Timing *control.TimingInForce `json:"timing"`
	// IneligibleSince is since when this agent's own process may not be elected, for the reason in its row.
	IneligibleSince time.Time `json:"ineligibleSince,omitzero"`
	// HeldBackUntil is until when eligible members come before this agent's own process, because ShortTenures of its
	// tenures in a row were short.
	HeldBackUntil time.Time `json:"heldBackUntil,omitzero"`
	ShortTenures  int       `json:"shortTenures,omitempty"`
	// Sessions are the open sessions of the application beside this agent, oldest first.
	Sessions []control.SessionStatus `json:"sessions,omitempty"`
	// Connections is nil if the agent carries none.
	Connections *control.Connections `json:"connections,omitempty"`
}

// SessionEventKind is the kind of a SessionEvent.
type SessionEventKind string

// The kinds of session events.
const (
	// Lead: the application may act as coordinator, in Term, with Token.
	Lead SessionEventKind = "lead"
	// Stop: the application must stop and confirm it. Then Successor takes the office.
	Stop SessionEventKind = "stop"
	// Elect: this process is elected in Term. It leads, or isn't elected any more, within WithinMillis: a former lease has
	// to end first.
	Elect SessionEventKind = "elect"
	// Follow: the process that was elected in Term doesn't lead.
	Follow SessionEventKind = "follow"
	// Lost: the tenure is over. The application must have stopped.
	Lost SessionEventKind = "lost"
	// SettingsChanged: the drain timeout or the lease of the group has changed.
	SettingsChanged SessionEventKind = "session"
)

// SessionEvent is sent to an application over its session.
type SessionEvent struct {
	Kind         SessionEventKind `json:"-"`
	Term         uint64           `json:"term"`
	Token        uint64           `json:"token,omitempty"`
	Successor    string           `json:"successor,omitempty"`
	WithinMillis int64            `json:"withinMillis,omitempty"`
}

// The errors of requests.
var (
	// ErrClosed: the agent has left the group.
	ErrClosed = errors.New("the agent has left the group")
	// ErrNoSession: there is no open session with this ID.
	ErrNoSession = errors.New("session not found")
	// ErrNotRenewed: the application of a session hangs, as far as the agent can tell.
	ErrNotRenewed = errors.New("the application stopped renewing its session")
	// ErrWrongTerm: the application wasn't asked to stop in this term.
	ErrWrongTerm = errors.New("the session was not asked to stop in this term")
	// ErrNotLeading: only the coordinator can step down.
	ErrNotLeading = errors.New("this process is not the coordinator")
	// ErrNoSuccessor: the named member, or every member, isn't ready.
	ErrNoSuccessor = errors.New("no member is ready to take over")
	// ErrHandOverTimeout: no successor has taken the office in time.
	ErrHandOverTimeout = errors.New("no member took over in time")
)

type notReadyError string

func (e notReadyError) Error() string { return string(e) + " " + control.NotReady }

func (notReadyError) Unwrap() error { return ErrNoSuccessor }
