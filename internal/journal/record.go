package journal

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Record is what happened in one step of an agent's machine. All that the agent tells of its elections derives from it:
// the state for the application, reports, metrics, the journal, and the trace, which has it as it is.
type Record struct {
	election.Input

	// Settings are new settings. Then there is no input other than the time.
	Settings *office.Settings   `json:"settings,omitempty"`
	Send     []election.Message `json:"send,omitempty"`
	Events   []election.Event   `json:"events,omitempty"`
	// Before is the status before the step, and Status that after it, which includes the role and the coordinator.
	Before election.Status `json:"-"`
	Status election.Status `json:"status"`
	// Deadline is when the machine needs the next input at the latest.
	Deadline election.Tick `json:"deadline"`
	// Cause is why the coordinator gives up the office in this step, EndNone if it doesn't.
	Cause control.EndCause `json:"cause,omitempty"`
}

// HasNewCoordinator reports whether another process is coordinator after the step, or none.
func (r *Record) HasNewCoordinator() bool { return r.Status.Coordinator != r.Before.Coordinator }

// HasNewTenure reports whether there is another tenure after the step, or none.
func (r *Record) HasNewTenure() bool {
	return r.HasNewCoordinator() || r.Status.Coordinator != election.None && r.Status.Term != r.Before.Term
}

// Has reports whether the step has caused an event of this kind.
func (r *Record) Has(kind election.EventKind) bool {
	for i := range r.Events {
		if r.Events[i].Kind == kind {
			return true
		}
	}
	return false
}
