package group

import (
	"time"

	"github.com/conclave-dev/conclave/internal/election"
)

// Cause is why a group was left without a coordinator.
type Cause uint8

// The causes.
const (
	// CauseStart: the agent has just started, and never knew one.
	CauseStart Cause = iota
	// CauseCrash: its process has ended.
	CauseCrash
	// CauseSilence: it hasn't been heard of for too long.
	CauseSilence
	// CauseHandover: it resigned.
	CauseHandover
	// CauseLapse: this process led, and could not renew its tenure.
	CauseLapse
	// CauseMembership: it is no longer a member.
	CauseMembership

	// CauseCount is how many there are.
	CauseCount
)

func (c Cause) String() string {
	return [...]string{"start", "crash", "silence", "handover", "lapse", "membership", "unknown"}[min(c, CauseCount)]
}

// Metrics is told what happens, to count it. All calls come from one goroutine.
type Metrics interface {
	Sent(kind election.Kind)
	Received(kind election.Kind)
	Event(event election.Event)
	// Refused: a letter was not read.
	Refused()
	// Suspected: a peer was silent for too long. Cleared: that was wrong, the same
	// process has been heard of.
	Suspected()
	Cleared()
	// CoordinatorLost: there is no coordinator. The last sign of life of the one before
	// was heard so long ago.
	CoordinatorLost(cause Cause, silence time.Duration)
	// CoordinatorFound: there is one again, after so long.
	CoordinatorFound(after time.Duration)
}

// observer turns inputs and outcomes into what a Metrics wants to know.
type observer struct {
	meter Metrics
	// coordinator is the one that is known, cause why there is none.
	coordinator election.ID
	vacantSince election.Tick
	heard       election.Tick
	lives       map[election.ID]uint32
	// suspects are those who fell silent, with the life that did.
	suspects map[election.ID]uint32
}

func newObserver(meter Metrics, now election.Tick) observer {
	meter.CoordinatorLost(CauseStart, 0)
	return observer{
		meter: meter, vacantSince: now, lives: map[election.ID]uint32{}, suspects: map[election.ID]uint32{},
	}
}

// observe looks at a step.
func (o *observer) observe(in *election.Input, self, coordinator election.ID, events []election.Event) {
	if in.Kind == election.Receive {
		o.lives[in.Message.From] = in.Message.Hold.Life
		if in.Message.From == o.coordinator {
			o.heard = in.Now
		}
	}
	for _, e := range events {
		switch {
		case e.Kind == election.MarkedCrashed && in.Kind == election.TimePassed:
			if _, already := o.suspects[e.Peer]; !already {
				o.suspects[e.Peer] = o.lives[e.Peer]
				o.meter.Suspected()
			}
		case e.Kind == election.MarkedNormal:
			if life, silent := o.suspects[e.Peer]; silent && life == o.lives[e.Peer] {
				o.meter.Cleared()
			}
			delete(o.suspects, e.Peer)
		}
	}
	if coordinator == o.coordinator {
		return
	}
	if o.coordinator != election.None { // One may also follow another at once.
		o.vacantSince = in.Now
		o.meter.CoordinatorLost(o.cause(in, self), time.Duration(in.Now-o.heard))
	}
	if coordinator != election.None {
		o.meter.CoordinatorFound(time.Duration(in.Now - o.vacantSince))
		o.heard = in.Now
	}
	o.coordinator = coordinator
}

func (o *observer) cause(in *election.Input, self election.ID) Cause {
	switch {
	case in.Kind == election.Ended:
		return CauseCrash
	case in.Kind == election.Adopt:
		return CauseMembership
	case in.Kind == election.Receive && in.Message.From == o.coordinator && in.Message.Kind == election.Resigned,
		in.Kind == election.Stopped, in.Kind == election.BecomeIneligible, in.Kind == election.StepDown:
		return CauseHandover
	case o.coordinator == self:
		return CauseLapse
	}
	return CauseSilence
}
