package group

import (
	"cmp"
	"context"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// observe completes the record of a step, from which all that this process tells about it derives. Once the output is
// collected, publish and report do, too: see applyOutput.
func (g *Group) observe(r journal.Record) {
	r.Before, r.Status, r.Deadline = g.record.Status, g.machine.Status(), g.machine.Deadline()
	g.record = r
	g.observer.observe(&g.record)
	g.journal.Record(&g.record)
	g.answers.observe(&g.record, g.self, g.cfg.Life)
	if err := g.recorder.Step(&g.record, g.names.byID); err != nil { // A trace that can't be written stops nothing.
		g.cfg.Log.Error("stopped recording", "error", err)
	}
}

// Journal returns the messages, events and grants of recent elections. The goroutine of run only copies them.
func (g *Group) Journal(ctx context.Context) (journal.Journal, error) {
	var (
		copied *journal.Ring
		result journal.Journal
		names  names
		now    election.Tick
	)
	err := g.call(ctx, func() {
		copied, names.byID, now = g.journal.Clone(), g.names.byID, g.cfg.Clock.Now()
		result = journal.Journal{
			Group: g.cfg.Group.Name, Agent: g.cfg.Self, Life: g.cfg.Life, At: time.Now(),
			Algorithm: g.cfg.Group.Algorithm, Safety: g.cfg.Group.Safety.Mode.String(), Omitted: g.journal.Omitted(),
		}
		for _, m := range g.list.Members {
			result.Members = append(result.Members, journal.Member{Name: m.Name, Priority: m.Priority})
		}
	})
	if err != nil {
		return journal.Journal{}, err // Not result: the function may still write to it.
	}
	at := result.At
	result.Steps = copied.Steps(names.name, func(tick election.Tick) time.Time {
		return at.Add(-time.Duration(now - tick))
	})
	return result, nil
}

func (g *Group) startRecorder(c office.Config) (err error) {
	g.recorder, err = journal.CreateTrace(g.cfg.TraceFolder, journal.TraceHeader{
		Group: g.cfg.Group.Name, Agent: g.cfg.Self, Algorithm: g.cfg.Group.Algorithm, Origin: g.cfg.Clock.Origin(),
		Names: g.names.byID,
	}, c)
	return err
}

// observer derives from records why tenures end, and the metrics of elections.
type observer struct {
	metrics     *Metrics
	self        election.ID
	vacantSince election.Tick
	// lastHeard is when the last message of the coordinator arrived, and electedAt when it was recognized in this term.
	lastHeard    election.Tick
	electedAt    time.Time
	incarnations map[election.ID]uint32
	// suspects has the suspected incarnation of each suspected process.
	suspects map[election.ID]uint32
	// announced is the cause in the message that is being received. resigning is why this process, the coordinator, gives
	// up the office, and EndNone until it decides to.
	announced, resigning control.EndCause
	// last is the end of the last tenure. Its cause is EndNone if none has ended yet.
	last ending
}

type ending struct {
	coordinator election.ID
	term        election.Term
	cause       control.EndCause
	at          time.Time
	// vacantSince is when the time without a coordinator began.
	vacantSince election.Tick
	gap         time.Duration
	gapKnown    bool
	// presumed: the process learned of the end only from others, so its coordinator may still say why.
	presumed bool
}

func newObserver(metrics *Metrics, self election.ID, now election.Tick) observer {
	metrics.lost(control.EndNone, 0)
	return observer{
		metrics: metrics, self: self, vacantSince: now,
		incarnations: map[election.ID]uint32{}, suspects: map[election.ID]uint32{},
	}
}

// decide records why this process gives up the office. The first reason counts: others follow from it.
func (o *observer) decide(cause control.EndCause) {
	if o.resigning == control.EndNone {
		o.resigning = cause
	}
}

// observe processes the record of a step, and sets its cause.
func (o *observer) observe(r *journal.Record) {
	if r.Kind == election.Receive {
		o.incarnations[r.Message.From] = r.Message.Hold.Life
		if r.Message.From == r.Before.Coordinator {
			o.lastHeard = r.Now
		}
	}
	o.countSuspicions(r)
	r.Cause = o.resignation(r)
	cause := o.cause(r)
	if r.HasNewTenure() {
		o.changeTenure(r, cause)
	}
	if !r.HasNewCoordinator() {
		return
	}
	if r.Before.Coordinator != election.None { // A coordinator may also follow another one at once.
		o.vacantSince = r.Now
		o.metrics.lost(cause, time.Duration(r.Now-o.lastHeard))
	}
	if r.Status.Coordinator != election.None {
		o.metrics.found(time.Duration(r.Now - o.vacantSince))
		o.lastHeard = r.Now
	}
}

func (o *observer) countSuspicions(r *journal.Record) {
	for _, e := range r.Events {
		switch {
		case e.Kind == election.MarkedCrashed && r.Kind == election.TimePassed:
			if _, already := o.suspects[e.Peer]; !already {
				o.suspects[e.Peer] = o.incarnations[e.Peer]
				o.metrics.Suspicions.Add(1)
			}
		case e.Kind == election.MarkedNormal:
			if life, suspected := o.suspects[e.Peer]; suspected && life == o.incarnations[e.Peer] {
				o.metrics.FalseSuspicions.Add(1)
			}
			delete(o.suspects, e.Peer)
		}
	}
}

// resignation returns why the coordinator resigns in a step, or begins to hand over, and otherwise EndNone.
func (o *observer) resignation(r *journal.Record) control.EndCause {
	begins := r.Has(election.StopRequested)
	switch {
	case begins && r.Kind == election.Adopt:
		o.decide(control.EndMembership)
	case begins:
		o.decide(control.EndPreempted)
	}
	resigned := r.Message.Kind == election.Resigned
	switch last := &o.last; {
	case begins, r.Has(election.OfficeResigned):
		return cmp.Or(o.resigning, control.EndHandOver)
	case resigned && r.Message.From == r.Before.Coordinator:
		return cmp.Or(o.announced, control.EndHandOver)
	case resigned && last.presumed && r.Message.From == last.coordinator && r.Message.Term == last.term:
		// It says so only now: the messages of the next coordinator may arrive earlier.
		last.cause, last.presumed = cmp.Or(o.announced, control.EndHandOver), false
		return last.cause
	}
	return control.EndNone
}

// cause returns why the tenure has ended, if it has.
func (o *observer) cause(r *journal.Record) control.EndCause {
	switch {
	case r.Kind == election.Ended:
		return control.EndCrash
	case r.Kind == election.Adopt:
		return control.EndMembership
	case r.Before.Coordinator == o.self:
		return cmp.Or(r.Cause, control.EndLapse)
	}
	return cmp.Or(r.Cause, control.EndSilence)
}

// changeTenure records the end of a tenure, or the beginning of the next one, or both.
func (o *observer) changeTenure(r *journal.Record, cause control.EndCause) {
	last := &o.last
	if before := r.Before.Coordinator; before != election.None {
		*last = ending{coordinator: before, term: r.Before.Term, cause: cause, at: time.Now(), vacantSince: r.Now}
		if cause == control.EndSilence {
			last.vacantSince = o.lastHeard
		}
		resigned := r.Message.Kind == election.Resigned && r.Message.From == before
		last.presumed = r.Kind == election.Receive && !resigned
		if last.presumed && r.Status.Coordinator != election.None {
			last.cause = control.EndUnknown
		}
		o.resigning = control.EndNone
	}
	o.electedAt = time.Time{}
	if r.Status.Coordinator == election.None {
		return
	}
	o.electedAt = time.Now()
	if last.cause != control.EndNone && last.cause != control.EndUnknown && !last.gapKnown {
		last.gap, last.gapKnown = time.Duration(r.Now-last.vacantSince), true
	}
}

func (e *ending) report(names *names) *control.Ending {
	if e.cause == control.EndNone {
		return nil
	}
	reported := &control.Ending{Coordinator: names.name(e.coordinator), Term: uint64(e.term), Cause: e.cause, At: e.at}
	if e.gapKnown {
		reported.GapMicros = new(e.gap.Microseconds())
	}
	return reported
}

// announcement returns why this process has ended its tenure, for a RESIGNED of that term.
func (e *ending) announcement(m *election.Message) control.EndCause {
	if m.Kind != election.Resigned || m.From != e.coordinator || m.Term != e.term {
		return control.EndNone
	}
	return e.cause
}

// announcedCause returns the cause in a received message, and EndNone if it has none that only the coordinator knows.
func announcedCause(message *wire.Message) control.EndCause {
	if message.EndCause < uint32(control.EndLapse) || message.EndCause >= uint32(control.EndUnknown) {
		return control.EndNone
	}
	return control.EndCause(message.EndCause)
}
