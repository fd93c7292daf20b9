package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Session represents a running application. The application holds it open as long as
// it runs, and receives events from it.
type Session struct {
	group *Group
	id    string
	// renews: the application has said that it answers Lead, and renews while it leads.
	renews bool

	// events grows by at most three events in a tenure, two for each claim and one for each change of the drain timeout,
	// and the API closes the session of an application that doesn't read.
	events  *feed[SessionEvent]
	watcher *Watcher[SessionEvent]

	// The fields below belong to the goroutine of run.

	// promisedUntil is the latest time until which the application may act without a newer answer.
	promisedUntil election.Tick
	renewals      renewals
	// openedAt and renewedAt are for people: see control.SessionStatus.
	openedAt, renewedAt time.Time
}

// OpenSession opens a session. One that renews is closed if its application doesn't answer in time after Lead, or stops
// renewing.
func (g *Group) OpenSession(ctx context.Context, renews bool) (*Session, error) {
	s := &Session{
		group: g, renews: renews, id: fmt.Sprintf("%08x-%016x", g.cfg.Life, rand.Uint64()),
		events: newFeed[SessionEvent](),
	}
	s.watcher = s.events.watch()
	err := g.call(ctx, func() {
		// A tenure whose lease has expired must end before a session may lead.
		g.step(election.Input{Kind: election.TimePassed})
		g.applyOutput()
		s.openedAt = time.Now()
		g.app.sessions = append(g.app.sessions, s)
		g.updateEligibility()
		if len(g.app.sessions) == 1 && g.app.term != 0 && !g.app.stopping {
			g.startLeading() // No session has acted in this tenure.
		}
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// ID returns the identifier of the session.
func (s *Session) ID() string { return s.id }

// Next waits for the next event. It skips a Lead event whose tenure is over.
func (s *Session) Next(ctx context.Context) (SessionEvent, error) {
	for {
		e, err := s.watcher.Next(ctx)
		if leader := s.group.Leader(); err != nil || e.Kind != Lead || leader.Leading && leader.Token == e.Token {
			return e, err
		}
	}
}

// Close reports that the application has ended. If it acted as coordinator, the process gives up the office.
func (s *Session) Close() {
	s.events.close(ErrClosed)
	_ = s.group.enqueue(func() { s.group.sessionClosed(s) }) // A group that was left has given up the office.
}

// sessionClosed removes a session. If that session acted as coordinator, the tenure ends, even if there is another
// session. The process may then be elected again, and the other session acts in the new tenure.
//
// If no session has ever counted, the session has received lead and never asked whether it
// leads. So it hasn't acted, and the tenure continues. It may have been a stray request.
func (g *Group) sessionClosed(s *Session) {
	if g.app.find(s.id) == nil {
		return
	}
	g.app.sessions = slices.DeleteFunc(g.app.sessions, func(other *Session) bool { return other == s })
	if g.app.acting != s {
		g.updateEligibility()
		return
	}
	g.app.acting = nil
	switch {
	case g.app.stopping:
		g.stoppedIfComplete()
	case !g.app.requiresSession:
		g.startLeading()
	case errors.Is(s.events.reason, ErrNotRenewed):
		g.releaseOffice(control.EndNotRenewed)
	default:
		g.releaseOffice(s.closeCause(time.Now()))
	}
}

// startLeading permits the oldest session, once the tenure is published, to act as coordinator.
func (g *Group) startLeading() {
	if len(g.app.sessions) == 0 {
		return
	}
	s := g.app.sessions[0]
	g.app.acting = s
	e := SessionEvent{Kind: Lead, Term: uint64(g.app.term), Token: uint64(g.app.token)}
	g.notices = append(g.notices, func() { s.events.append(e) })
	if s.renews {
		g.awaitAnswer(s)
	}
}

// tellElected tells the session that would lead whether this process is elected, when that changes. A new tenure tells
// itself.
func (g *Group) tellElected() {
	before, now := g.app.elected, elected{}
	term, until := g.machine.Elected()
	if term != 0 && len(g.app.sessions) > 0 {
		now = elected{term, g.app.sessions[0]}
	}
	if now == before {
		return
	}
	g.app.elected = now
	e := SessionEvent{Kind: Elect, Term: uint64(term)}
	switch {
	case now.session != nil:
		e.WithinMillis = max(1, g.cfg.Clock.Until(until).Milliseconds())
		now.session.events.append(e)
	case g.app.term == 0:
		before.session.events.append(SessionEvent{Kind: Follow, Term: uint64(before.term)})
	}
}

// requestStop asks the acting session to stop. From now on, this process doesn't report that it leads.
func (g *Group) requestStop(term election.Term, successor election.ID) {
	if !g.app.stopping {
		g.app.stopping, g.app.stopBy = true, g.cfg.Clock.Now()+election.Tick(g.DrainTimeout())
	}
	g.publish()
	if s := g.app.acting; s != nil {
		stop := SessionEvent{Kind: Stop, Term: uint64(term), Successor: g.names.name(successor)}
		g.notices = append(g.notices, func() { s.events.append(stop) })
	}
}

// ConfirmStopped reports that the application no longer acts as coordinator.
func (g *Group) ConfirmStopped(ctx context.Context, session string, term uint64) error {
	return g.try(ctx, func() error {
		s := g.app.find(session)
		switch {
		case s == nil:
			return ErrNoSession
		case !g.app.stopping || g.app.acting != s || uint64(g.app.term) != term:
			return ErrWrongTerm
		}
		g.app.requiresSession = true
		g.app.acting = nil
		g.stoppedIfComplete()
		return nil
	})
}

// stoppedIfComplete reports to the machine that the application has stopped, once this is true for all of it: for the
// acting session, and for each caller of LeaderWithPromise when its promise is over.
func (g *Group) stoppedIfComplete() {
	if g.app.acting != nil {
		return
	}
	if g.app.releasing {
		g.releaseOffice(g.observer.resigning)
		return
	}
	term := g.app.term
	stopped := func() { g.step(election.Input{Kind: election.Stopped, Term: term}) }
	if rest := g.promiseRemaining(); rest > 0 {
		g.after(rest, stopped)
		return
	}
	stopped()
}
