package group

import (
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
)

// Cause is the reason for which a group has no coordinator.
type Cause uint8

// The causes.
const (
	// CauseStart: the agent has just started.
	CauseStart Cause = iota
	// CauseCrash: the process of the coordinator has ended.
	CauseCrash
	// CauseSilence: no heartbeat of the coordinator arrived for the suspicion timeout.
	CauseSilence
	// CauseHandover: the coordinator resigned.
	CauseHandover
	// CauseLapse: this process was coordinator, and couldn't renew its lease.
	CauseLapse
	// CauseMembership: the member list changed.
	CauseMembership

	// CauseCount is the number of causes.
	CauseCount
)

func (c Cause) String() string {
	return [...]string{"start", "crash", "silence", "handover", "lapse", "membership", "unknown"}[min(c, CauseCount)]
}

// Metrics counts what happens in a group. All calls come from one goroutine, except those
// of Dropped.
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
	CoordinatorLost(cause Cause, silence time.Duration)
	// CoordinatorFound reports that a coordinator was recognized, after this time.
	CoordinatorFound(after time.Duration)
	// Answered reports how long a member took to answer a heartbeat of this coordinator.
	Answered(after time.Duration)
}

// observer derives the calls of Metrics from the steps of the machine.
type observer struct {
	metrics Metrics
	// coordinator is the known one, or None.
	coordinator  election.ID
	vacantSince  election.Tick
	lastHeard    election.Tick
	incarnations map[election.ID]uint32
	// suspects has the suspected incarnation of each suspected process.
	suspects map[election.ID]uint32
	endings  endings
}

func newObserver(metrics Metrics, now election.Tick) observer {
	metrics.CoordinatorLost(CauseStart, 0)
	return observer{
		metrics: metrics, vacantSince: now, incarnations: map[election.ID]uint32{}, suspects: map[election.ID]uint32{},
	}
}

// observe processes one step.
func (o *observer) observe(in *election.Input, self election.ID, status election.Status, events []election.Event) {
	coordinator := status.Coordinator
	if in.Kind == election.Receive {
		o.incarnations[in.Message.From] = in.Message.Hold.Life
		if in.Message.From == o.coordinator {
			o.lastHeard = in.Now
		}
	}
	for _, e := range events {
		switch {
		case e.Kind == election.MarkedCrashed && in.Kind == election.TimePassed:
			if _, already := o.suspects[e.Peer]; !already {
				o.suspects[e.Peer] = o.incarnations[e.Peer]
				o.metrics.Suspected()
			}
		case e.Kind == election.MarkedNormal:
			if life, suspected := o.suspects[e.Peer]; suspected && life == o.incarnations[e.Peer] {
				o.metrics.Cleared()
			}
			delete(o.suspects, e.Peer)
		}
	}
	cause := o.cause(in, self, events)
	o.endings.observe(in, cause.endCause(), o.lastHeard, status)
	if coordinator == o.coordinator {
		return
	}
	if o.coordinator != election.None { // A coordinator may also follow another one at once.
		o.vacantSince = in.Now
		o.metrics.CoordinatorLost(cause, time.Duration(in.Now-o.lastHeard))
	}
	if coordinator != election.None {
		o.metrics.CoordinatorFound(time.Duration(in.Now - o.vacantSince))
		o.lastHeard = in.Now
	}
	o.coordinator = coordinator
}

// cause returns why a step ended the tenure, if it did.
func (o *observer) cause(in *election.Input, self election.ID, events []election.Event) Cause {
	resigned := func(e election.Event) bool { return e.Kind == election.OfficeResigned }
	switch {
	case in.Kind == election.Ended:
		return CauseCrash
	case in.Kind == election.Adopt:
		return CauseMembership
	case in.Kind == election.Receive && in.Message.From == o.coordinator && in.Message.Kind == election.Resigned,
		slices.ContainsFunc(events, resigned):
		return CauseHandover
	case o.coordinator == self:
		return CauseLapse
	}
	return CauseSilence
}
