package group

import (
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Metrics counts what happens in a group. All calls come from one goroutine, except those of Dropped.
type Metrics interface {
	Sent(kind election.Kind)
	Received(kind election.Kind)
	Event(event election.Event)
	// Refused counts a message that was ignored.
	Refused()
	// Dropped counts a message that was dropped because too many others waited.
	Dropped()
	// Suspected counts a peer that is suspected because its messages are missing.
	Suspected()
	// Cleared counts a suspicion that was wrong: the same incarnation is alive.
	Cleared()
	// CoordinatorLost reports that there is no coordinator any more. silence is the time
	// since the last message of the previous one.
	CoordinatorLost(cause control.EndCause, silence time.Duration)
	// CoordinatorFound reports that a coordinator was recognized, after this time.
	CoordinatorFound(after time.Duration)
	// Answered reports how long a member took to answer a heartbeat of this coordinator.
	Answered(after time.Duration)
}
