package group

import (
	"cmp"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Cause is the reason for which a group has no coordinator. A RESIGNED has the number of the
// cause, so the numbers never change.
type Cause uint8

// The causes.
const (
	// CauseStart: the agent has just started. As the cause of a resignation, it is unknown.
	CauseStart Cause = iota
	// CauseCrash: the process of the coordinator has ended.
	CauseCrash
	// CauseSilence: no heartbeat of the coordinator arrived for the suspicion timeout.
	CauseSilence
	// CauseHandover: the coordinator resigned, for none of the reasons below.
	CauseHandover
	// CauseLapse: the coordinator couldn't renew its lease.
	CauseLapse
	// CauseMembership: the member list changed.
	CauseMembership
	// CauseStepDown: a user has requested that the coordinator resigns.
	CauseStepDown
	// CausePreempted: the coordinator handed over to a higher member.
	CausePreempted
	// CauseExcluded: the operator has excluded the coordinator.
	CauseExcluded
	// CauseSessionClosed: the coordinator's application closed its session, or ended.
	CauseSessionClosed
	// CauseNotRenewed: the session of the coordinator's application wasn't renewed in time: the application or the agent
	// was paused.
	CauseNotRenewed
	// CauseProbeFailed: the probe of the coordinator's application failed.
	CauseProbeFailed
	// CauseStopped: the coordinator's agent was told to end.
	CauseStopped

	// CauseCount is the number of causes.
	CauseCount
)

func (c Cause) String() string {
	return [...]string{
		"start", "crash", "silence", "handover", "lapse", "membership", "step_down", "preempted", "excluded",
		"session_closed", "not_renewed",
		"probe_failed", "stopped", "unknown",
	}[min(c, CauseCount)]
}

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
	// announced is the cause in the message that is being received.
	announced Cause
}

func newObserver(metrics Metrics, now election.Tick) observer {
	metrics.CoordinatorLost(CauseStart, 0)
	return observer{
		metrics: metrics, vacantSince: now, incarnations: map[election.ID]uint32{}, suspects: map[election.ID]uint32{},
	}
}

// observe processes one step. It returns why the coordinator gives up the office in this step, and otherwise
// CauseStart.
func (o *observer) observe(in *election.Input, self election.ID, status election.Status,
	events []election.Event,
) Cause {
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
	resignation := o.resignation(in, events)
	cause := o.cause(in, self, resignation)
	o.endings.observe(in, cause, o.lastHeard, status)
	if coordinator == o.coordinator {
		return resignation
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
	return resignation
}

// resignation returns why the coordinator resigns in a step, or begins to hand over, and otherwise CauseStart.
func (o *observer) resignation(in *election.Input, events []election.Event) Cause {
	is := func(kind election.EventKind) bool {
		return slices.ContainsFunc(events, func(e election.Event) bool { return e.Kind == kind })
	}
	begins := is(election.StopRequested)
	switch {
	case begins && in.Kind == election.Adopt:
		o.endings.decide(CauseMembership)
	case begins:
		o.endings.decide(CausePreempted)
	}
	switch {
	case begins, is(election.OfficeResigned):
		return cmp.Or(o.endings.resigning, CauseHandover)
	case in.Kind == election.Receive && in.Message.From == o.coordinator && in.Message.Kind == election.Resigned:
		return cmp.Or(o.announced, CauseHandover)
	case in.Kind == election.Receive:
		return o.endings.correct(&in.Message, o.announced)
	}
	return CauseStart
}

func (o *observer) cause(in *election.Input, self election.ID, resignation Cause) Cause {
	switch {
	case in.Kind == election.Ended:
		return CauseCrash
	case in.Kind == election.Adopt:
		return CauseMembership
	case resignation != CauseStart:
		return resignation
	case o.coordinator == self:
		return CauseLapse
	}
	return CauseSilence
}

type endings struct {
	// coordinator and term are those of the present tenure, and None if there is none.
	coordinator election.ID
	term        election.Term
	// resigning is why this process, the coordinator, gives up the office, and CauseStart until it decides to.
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
	if status.Coordinator != election.None && e.last.cause != CauseStart &&
		e.last.cause != causeUnknown && !e.last.gapKnown {
		e.last.gap, e.last.gapKnown = time.Duration(in.Now-e.last.vacantSince), true
	}
	e.coordinator, e.term = status.Coordinator, status.Term
}

// correct returns why the last tenure ended, if its coordinator says so only now: the messages of the next one may
// arrive earlier.
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
	reported := &control.Ending{
		Coordinator: names.name(e.coordinator), Term: uint64(e.term), Cause: e.cause.endCause(), At: e.at,
	}
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

// announcedCause returns the cause in a received message, and CauseStart if it has none that only the coordinator
// knows.
func announcedCause(message *wire.Message) Cause {
	if message.EndCause < uint32(CauseLapse) || message.EndCause >= uint32(CauseCount) {
		return CauseStart
	}
	return Cause(message.EndCause)
}

// endCauses are the names of the causes in reports and journals.
var endCauses = [CauseCount]control.EndCause{
	CauseStart: control.EndUnknown, CauseCrash: control.EndCrash, CauseSilence: control.EndSilence,
	CauseHandover: control.EndHandOver,
	CauseLapse:    control.EndLapse, CauseMembership: control.EndMembership, CauseStepDown: control.EndStepDown,
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
