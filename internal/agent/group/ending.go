package group

import (
	"cmp"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

type endings struct {
	// coordinator and term are those of the present tenure, and None if there is none.
	coordinator election.ID
	term        election.Term
	// resigning is why this process, the coordinator, gives up the office, and CauseStart until it
	// decides to.
	resigning Cause
	// last is the end of the last tenure. Its cause is CauseStart if none has ended yet.
	last ending
}

type ending struct {
	coordinator election.ID
	term        election.Term
	cause       Cause
	at          time.Time
	// vacantSince is when the time without a coordinator began.
	vacantSince election.Tick
	gap         time.Duration
	gapKnown    bool
	// presumed: the process learned of the end only from others, so its coordinator may still say why.
	presumed bool
}

// causeUnknown: the process learned of the end only from the next coordinator.
const causeUnknown = CauseCount

// decide records why this process gives up the office. The first reason counts: others follow from it.
func (e *endings) decide(cause Cause) {
	if e.resigning == CauseStart {
		e.resigning = cause
	}
}

// observe processes a step. cause is why the tenure has ended, if it has, and lastHeard is
// when the last message of its coordinator arrived.
func (e *endings) observe(in *election.Input, cause Cause, lastHeard election.Tick, status election.Status) {
	if status.Coordinator == e.coordinator && (status.Coordinator == election.None || status.Term == e.term) {
		return
	}
	if e.coordinator != election.None {
		e.last = ending{coordinator: e.coordinator, term: e.term, cause: cause, at: time.Now(), vacantSince: in.Now}
		if cause == CauseSilence {
			e.last.vacantSince = lastHeard
		}
		resigned := in.Message.Kind == election.Resigned && in.Message.From == e.coordinator
		e.last.presumed = in.Kind == election.Receive && !resigned
		if e.last.presumed && status.Coordinator != election.None {
			e.last.cause = causeUnknown
		}
		e.resigning = CauseStart
	}
	if status.Coordinator != election.None && e.last.cause != CauseStart && e.last.cause != causeUnknown && !e.last.gapKnown {
		e.last.gap, e.last.gapKnown = time.Duration(in.Now-e.last.vacantSince), true
	}
	e.coordinator, e.term = status.Coordinator, status.Term
}

// correct returns why the last tenure ended, if its coordinator says so only now: the messages of the next one may arrive earlier.
func (e *endings) correct(m *election.Message, announced Cause) Cause {
	last := &e.last
	if m.Kind != election.Resigned || m.From != last.coordinator || m.Term != last.term || !last.presumed {
		return CauseStart
	}
	last.cause, last.presumed = cmp.Or(announced, CauseHandover), false
	return last.cause
}

func (e *ending) report(names *names) *control.Ending {
	if e.cause == CauseStart {
		return nil
	}
	reported := &control.Ending{Coordinator: names.name(e.coordinator), Term: uint64(e.term), Cause: e.cause.endCause(), At: e.at}
	if e.gapKnown {
		reported.GapMicros = new(e.gap.Microseconds())
	}
	return reported
}

// announcement returns why this process has ended its tenure, for a RESIGNED of that term.
func (e *endings) announcement(m *election.Message) Cause {
	if m.Kind != election.Resigned || m.From != e.last.coordinator || m.Term != e.last.term {
		return CauseStart
	}
	return e.last.cause
}

// announcedCause returns the cause in a received message, and CauseStart if it has none that only the coordinator knows.
func announcedCause(message *wire.Message) Cause {
	if message.EndCause < uint32(CauseLapse) || message.EndCause >= uint32(CauseCount) {
		return CauseStart
	}
	return Cause(message.EndCause)
}

// endCauses are the names of the causes in reports and journals.
var endCauses = [CauseCount]control.EndCause{
	CauseStart: control.EndUnknown, CauseCrash: control.EndCrash, CauseSilence: control.EndSilence, CauseHandover: control.EndHandOver,
	CauseLapse: control.EndLapse, CauseMembership: control.EndMembership, CauseStepDown: control.EndStepDown,
	CausePreempted: control.EndPreempted, CauseExcluded: control.EndExcluded,
	CauseSessionClosed: control.EndSessionClosed, CauseNotRenewed: control.EndNotRenewed,
	CauseProbeFailed: control.EndProbeFailed, CauseStopped: control.EndStopped,
}

func (c Cause) endCause() control.EndCause {
	if c >= CauseCount {
		return control.EndUnknown
	}
	return endCauses[c]
}

// causeName returns the name of a cause in a journal, which has none for CauseStart.
func causeName(cause uint8) string {
	if c := Cause(cause); c != CauseStart {
		return string(c.endCause())
	}
	return ""
}
