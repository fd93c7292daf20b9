package group

import (
	"context"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// application is the state of the program for which the agent takes part in the election.
type application struct {
	// requiresSession: without a session, the application counts as dead. This is so from the start if the configuration
	// requires a session, and otherwise from the first session on that counts: one that has asked whether it leads, or
	// confirmed that it has stopped. A stream alone may be a stray request.
	requiresSession bool
	healthy         bool
	sessions        []*Session
	// acting is the session that was asked to lead and hasn't confirmed that it stopped. There is at most one in a tenure:
	// two runs of an application must not use the same token.
	acting *Session
	// excluded: the operator has made the process ineligible. leaving: it leaves the group.
	excluded, leaving bool
	// eligible is what was last reported to the machine.
	eligible bool
	// term and token are those of the current tenure, and 0 without one.
	term  election.Term
	token election.Token
	// stopping: the application was asked to stop. releasing: not to hand over to a
	// successor, but because the process gives up the office.
	stopping, releasing bool
	// elected is the election of which a session was told, and that hasn't ended.
	elected elected
	// stopBy is when the drain timeout of an application that stops is over.
	stopBy election.Tick
}

// elected is an election that this process has won, while it waits for the end of a former lease, and the session that
// would lead. It is zero otherwise.
type elected struct {
	term    election.Term
	session *Session
}

func newApplication(group config.Group) application {
	return application{requiresSession: group.Session, healthy: group.Probe == nil, eligible: true}
}

func (a *application) close() {
	for _, s := range a.sessions {
		s.events.close(ErrClosed)
	}
}

// mayBeEligible reports whether the process may be coordinator. A coordinator that is
// excluded or leaves remains eligible until it has handed over.
func (a *application) mayBeEligible() bool {
	ruledOut := (a.excluded || a.leaving) && a.term == 0
	return a.healthy && (len(a.sessions) > 0 || !a.requiresSession) && !ruledOut
}

func (a *application) find(id string) *Session {
	for _, s := range a.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

// releaseOffice makes the process ineligible, which gives up the office. First, it waits until nothing acts as
// coordinator any more: neither the acting session, which may take the drain timeout to stop, nor a caller of
// LeaderWithPromise, such as a part of a dead application that still runs. If the application recovers in the meantime,
// the tenure ends nevertheless.
func (g *Group) releaseOffice(cause control.EndCause) {
	a := &g.app
	if a.term != 0 {
		g.observer.decide(cause)
	}
	switch rest := g.promiseRemaining(); {
	case a.acting != nil && a.stopping: // It was asked to stop, and the drain timeout runs.
	case a.acting != nil:
		g.requestStop(a.term, election.None)
		a.releasing = true
		g.becomeIneligibleAfter(g.DrainTimeout())
	case a.term == 0 || rest <= 0:
		g.becomeIneligible()
	default:
		if !a.stopping {
			g.requestStop(a.term, election.None) // This ends further promises.
		}
		g.becomeIneligibleAfter(rest)
	}
}

// becomeIneligibleAfter makes the process ineligible after a time, if the tenure is still the same.
func (g *Group) becomeIneligibleAfter(rest time.Duration) {
	term := g.app.term
	g.after(rest, func() {
		if g.app.term == term {
			g.becomeIneligible()
		}
	})
}

func (g *Group) becomeIneligible() {
	if g.app.eligible {
		g.app.eligible = false
		g.step(election.Input{Kind: election.BecomeIneligible})
	}
}

func (g *Group) updateEligibility() {
	eligible := g.app.mayBeEligible()
	switch {
	case eligible == g.app.eligible:
	case eligible:
		g.app.eligible = true
		g.step(election.Input{Kind: election.BecomeEligible})
	case !g.app.healthy:
		g.releaseOffice(control.EndProbeFailed)
	default:
		g.releaseOffice(control.EndSessionClosed)
	}
}

// ReportProbe handles the result of a probe of the application.
func (g *Group) ReportProbe(ctx context.Context, healthy bool) error {
	return g.call(ctx, func() {
		g.app.healthy = healthy
		g.updateEligibility()
	})
}

func (g *Group) handleEvent(e election.Event) {
	g.cfg.Metrics.event(e)
	g.logEvent(e)
	a := &g.app
	switch e.Kind {
	case election.TenureStarted:
		a.term, a.token, a.stopping, a.releasing = e.Term, e.Token, false, false
		g.startLeading()
	case election.StopRequested:
		g.requestStop(e.Term, e.Peer)
		g.stoppedIfComplete()
	case election.TenureLost, election.OfficeResigned:
		if s := a.acting; s != nil {
			g.notices = append(g.notices, func() { s.events.append(SessionEvent{Kind: Lost, Term: uint64(e.Term)}) })
		}
		a.term, a.token, a.acting, a.stopping, a.releasing = 0, 0, nil, false, false
		g.updateEligibility() // Changes during the tenure were postponed.
	default:
	}
}

// logEvent logs changes of the coordinator as information, and other events for debugging.
func (g *Group) logEvent(e election.Event) {
	log := g.cfg.Log.Debug
	switch e.Kind {
	case election.TooSlow:
		roundTrip, limit := g.machine.SlowAnswers()
		g.cfg.Log.Warn("no coordinator: the members answer too slowly to renew a lease",
			"roundTrip", time.Duration(roundTrip).String(), "limit", time.Duration(limit).String())
		return
	case election.TenureLost, election.OfficeResigned:
		log = g.cfg.Log.With("cause", g.observer.last.cause.String()).Info
	case election.TenureStarted, election.StopRequested, election.Recognized, election.Learned:
		log = g.cfg.Log.Info
	default:
	}
	log(e.Kind.String(), "peer", g.names.name(e.Peer), "term", uint64(e.Term))
}

// Ineligibility is why this process may not be elected.
type Ineligibility uint8

// The reasons.
const (
	Eligible Ineligibility = iota
	NotMember
	NoPriority
	Excluded
	Leaving
	// Forgetful: the list names another state directory of the agent.
	Forgetful
	ProbeFails
	NoSession
	// SteppedDown: it has handed the office over on request, and doesn't take it back for a while.
	SteppedDown

	// IneligibilityCount is the number of values.
	IneligibilityCount
)

// Label returns the reason in a word, for metrics.
func (i Ineligibility) Label() string {
	return [...]string{
		"", "not_member", "priority", "excluded", "leaving", "forgetful", "probe", "session", "stepped_down",
	}[i]
}

func (i Ineligibility) String() string {
	return [...]string{
		"", "it is not in the member list", "its priority is 0", "the operator has excluded it", "it is leaving the group",
		"its state directory is new: it votes under the next member list", "the probe of its application fails",
		"no session is open, although its application has used one or one is required",
		"it has stepped down and waits",
	}[i]
}

// Ineligible returns why this process may not be elected. It never blocks.
func (g *Group) Ineligible() Ineligibility { return g.published.Load().ineligible }

func (g *Group) ineligible() Ineligibility {
	a := &g.app
	switch {
	case a.eligible && g.machine.Eligible():
		return Eligible
	case !g.roster.Has(g.self):
		return NotMember
	case g.roster.Priority(g.self) == 0:
		return NoPriority
	case g.machine.Forgetful():
		return Forgetful
	case a.excluded:
		return Excluded
	case !a.healthy:
		return ProbeFails
	case a.requiresSession && len(a.sessions) == 0:
		return NoSession
	case a.leaving || !a.eligible:
		return Leaving
	}
	return SteppedDown
}

// ineligibilityChanged notes and logs a change of the reason why this process may not be elected.
func (g *Group) ineligibilityChanged(before, now Ineligibility) {
	switch {
	case before == now:
	case now == Eligible:
		g.ineligibleSince = time.Time{}
		g.cfg.Log.Info("became eligible")
	default:
		g.ineligibleSince = time.Now()
		g.cfg.Log.Info("not eligible", "reason", now.String())
	}
}
