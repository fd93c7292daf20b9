package group

import (
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// endings observes when and why tenures end, and the time until the next one begins.
type endings struct {
	// coordinator and term are those of the present tenure, and None if there is none.
	coordinator election.ID
	term        election.Term
	// stepDownRequested: a user has requested that this process, the coordinator, resigns.
	stepDownRequested bool
	// last is the end of the last tenure. Its cause is "" if none has ended yet.
	last ending
}

// ending is what this process observed of the end of a tenure.
type ending struct {
	coordinator election.ID
	term        election.Term
	cause       control.EndCause
	at          time.Time
	// vacantSince is when the time without a coordinator began.
	vacantSince election.Tick
	gap         time.Duration
	gapKnown    bool
}

// observe processes a step. cause is why the tenure has ended, if it has, and lastHeard is
// when the last message of its coordinator arrived.
func (e *endings) observe(in *election.Input, cause control.EndCause, lastHeard election.Tick, status election.Status) {
	if status.Coordinator == e.coordinator && (status.Coordinator == election.None || status.Term == e.term) {
		return
	}
	if e.coordinator != election.None {
		e.last = ending{coordinator: e.coordinator, term: e.term, cause: cause, at: time.Now(), vacantSince: in.Now}
		if cause == control.EndSilence {
			e.last.vacantSince = lastHeard
		}
		if cause == control.EndHandOver && e.stepDownRequested {
			e.last.cause = control.EndStepDown
		}
		if in.Kind == election.Receive && status.Coordinator != election.None {
			e.last.cause = control.EndUnknown
		}
		e.stepDownRequested = false
	}
	if status.Coordinator != election.None && e.last.cause != "" && e.last.cause != control.EndUnknown && !e.last.gapKnown {
		e.last.gap, e.last.gapKnown = time.Duration(in.Now-e.last.vacantSince), true
	}
	e.coordinator, e.term = status.Coordinator, status.Term
}

// report returns the end of the last tenure for a report, or nil.
func (e *ending) report(names *names) *control.Ending {
	if e.cause == "" {
		return nil
	}
	reported := &control.Ending{Coordinator: names.name(e.coordinator), Term: uint64(e.term), Cause: e.cause, At: e.at}
	if e.gapKnown {
		reported.GapMicros = new(e.gap.Microseconds())
	}
	return reported
}

// endCause returns the name of a cause in reports.
func (c Cause) endCause() control.EndCause {
	switch c {
	case CauseCrash:
		return control.EndCrash
	case CauseSilence:
		return control.EndSilence
	case CauseHandover:
		return control.EndHandOver
	case CauseLapse:
		return control.EndLapse
	case CauseMembership:
		return control.EndMembership
	case CauseStart, CauseCount:
	}
	return control.EndUnknown
}
