package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
)

// application is the program for which the agent takes part: what it holds open,
// and what it has been told.
type application struct {
	// bound: without a session it is dead. That is so from the start if it must
	// have one, and otherwise from its first session on.
	bound bool
	// well is what the probe found.
	well bool
	// sessions are open, the oldest first.
	sessions []*Session
	// acting was told to lead, and hasn't said that it stopped. There is one at
	// most in a tenure: two lives of an application must not have the same token.
	acting *Session
	// withheld: it must not lead, whatever becomes of it, until further notice;
	// leaving: for good.
	withheld, leaving bool
	// standing is what the Machine was told last.
	standing bool
	// term and token are those of the tenure, 0 without one.
	term  election.Term
	token election.Token
	// stopping: it was told to stop; retiring: not for a successor, but since it
	// isn't to lead any more.
	stopping, retiring bool
}

func newApplication(of config.Group) application {
	return application{bound: of.Session, well: of.Probe == nil, standing: true}
}

func (a *application) close() {
	for _, s := range a.sessions {
		s.end()
	}
}

// alive reports whether it could be coordinator. One that is withheld while it
// leads, or leaves, hands over first.
func (a *application) alive() bool {
	barred := (a.withheld || a.leaving) && a.term == 0
	return a.well && (len(a.sessions) > 0 || !a.bound) && !barred
}

func (a *application) find(id string) *Session {
	for _, s := range a.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

// Session is what an application holds open as long as it lives.
type Session struct {
	group *Group
	id    string

	mu     sync.Mutex
	events []SessionEvent
	more   chan struct{}
	ended  chan struct{}
	once   sync.Once
}

// OpenSession begins a session.
func (g *Group) OpenSession(ctx context.Context) (*Session, error) {
	s := &Session{
		group: g, id: fmt.Sprintf("%08x-%016x", g.cfg.Life, rand.Uint64()),
		more: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	err := g.ask(ctx, func() {
		// What time has ended meanwhile must have ended before anybody is told to lead.
		g.step(election.Input{Kind: election.TimePassed})
		g.settle()
		g.app.bound = true
		g.app.sessions = append(g.app.sessions, s)
		g.reconsider()
		if len(g.app.sessions) == 1 && g.app.term != 0 && !g.app.stopping {
			g.lead() // Nobody has, in this tenure.
		}
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// ID names the session.
func (s *Session) ID() string { return s.id }

// Next waits for what the application must know next.
func (s *Session) Next(ctx context.Context) (SessionEvent, error) {
	for {
		if e, ok := s.take(); ok {
			return e, nil
		}
		select {
		case <-s.more:
		case <-s.ended:
			if e, ok := s.take(); ok {
				return e, nil
			}
			return SessionEvent{}, ErrClosed
		case <-ctx.Done():
			return SessionEvent{}, ctx.Err()
		}
	}
}

// take is the next event. That the application may lead is no news any more when
// it no longer does.
func (s *Session) take() (SessionEvent, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.events) > 0 {
		e := s.events[0]
		s.events = s.events[1:]
		if leader := s.group.Leader(); e.Kind != Lead || leader.Leading && leader.Token == e.Token {
			return e, true
		}
	}
	return SessionEvent{}, false
}

// Close says that the application is dead. If it led, the role is given up.
func (s *Session) Close() {
	s.end()
	_ = s.group.do(func() { s.group.closed(s) }) // Of a group that was left, nothing has to be given up.
}

func (s *Session) end() { s.once.Do(func() { close(s.ended) }) }

// tell queues an event. What the application doesn't fetch is bounded by what
// can happen while it is told that it leads and that it doesn't.
func (s *Session) tell(e SessionEvent) {
	s.mu.Lock()
	s.events = append(s.events, e)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// closed takes a session away. One that was acting takes the role with it, even
// if there is another one: that may stand again, for a tenure of its own.
func (g *Group) closed(s *Session) {
	if g.app.find(s.id) == nil {
		return
	}
	g.app.sessions = slices.DeleteFunc(g.app.sessions, func(one *Session) bool { return one == s })
	if g.app.acting != s {
		g.reconsider()
		return
	}
	g.app.acting = nil
	if g.app.stopping {
		g.stoppedIfResting()
	} else {
		g.giveUp()
	}
}

// giveUp withdraws when nothing acts any more: neither the session that was told
// to lead, which has the time to stop, nor somebody who only asked and may take
// this process for the coordinator, as a part of a dead application may that lives
// on. Whatever becomes of the application meanwhile, its tenure ends.
func (g *Group) giveUp() {
	a := &g.app
	switch rest := g.owed(); {
	case a.acting != nil && a.stopping: // It has been told, and its time runs.
	case a.acting != nil:
		g.stop(a.term, election.None)
		a.retiring = true
		g.withdrawAfter(g.DrainTimeout())
	case a.term == 0 || rest <= 0:
		g.withdraw()
	default:
		if !a.stopping {
			g.stop(a.term, election.None) // Nobody is promised more.
		}
		g.withdrawAfter(rest)
	}
}

// withdrawAfter withdraws from the present tenure, if it lasts for so long.
func (g *Group) withdrawAfter(rest time.Duration) {
	term := g.app.term
	time.AfterFunc(rest, func() {
		_ = g.do(func() { // A group that was left has nothing to give up.
			if g.app.term == term {
				g.withdraw()
			}
		})
	})
}

// owed is how long somebody who only asked may still act.
func (g *Group) owed() time.Duration { return g.cfg.Clock.Until(g.promised) }

func (g *Group) withdraw() {
	if g.app.standing {
		g.app.standing = false
		g.step(election.Input{Kind: election.BecomeIneligible})
	}
}

// reconsider tells the Machine whether the application lives, if that changed.
func (g *Group) reconsider() {
	alive := g.app.alive()
	switch {
	case alive == g.app.standing:
	case alive:
		g.app.standing = true
		g.step(election.Input{Kind: election.BecomeEligible})
	default:
		g.giveUp()
	}
}

// ReportProbe takes what a probe of the application found.
func (g *Group) ReportProbe(ctx context.Context, well bool) error {
	return g.ask(ctx, func() {
		g.app.well = well
		g.reconsider()
	})
}

// ConfirmStopped takes the application's word that it no longer acts as coordinator.
func (g *Group) ConfirmStopped(ctx context.Context, session string, term uint64) error {
	var refused error
	err := g.ask(ctx, func() {
		s := g.app.find(session)
		switch {
		case s == nil:
			refused = ErrNoSession
		case !g.app.stopping || g.app.acting != s || uint64(g.app.term) != term:
			refused = ErrWrongTerm
		default:
			g.app.acting = nil
			g.stoppedIfResting()
		}
	})
	if err != nil {
		return err
	}
	return refused
}

// stoppedIfResting tells the Machine that the application has stopped, when all of
// it has: the session that was told to, and whoever only asked, by the time until
// which it may have taken this process for the coordinator.
func (g *Group) stoppedIfResting() {
	if g.app.acting != nil {
		return
	}
	if g.app.retiring {
		g.giveUp()
		return
	}
	term := g.app.term
	stopped := func() { g.step(election.Input{Kind: election.Stopped, Term: term}) }
	if rest := g.owed(); rest > 0 {
		time.AfterFunc(rest, func() { _ = g.do(stopped) }) // A group that was left has stopped.
		return
	}
	stopped()
}

// told acts on an event of the Machine.
func (g *Group) told(e election.Event) {
	g.cfg.Metrics.Event(e)
	g.log(e)
	a := &g.app
	switch e.Kind {
	case election.TenureStarted:
		a.term, a.token, a.stopping, a.retiring = e.Term, e.Token, false, false
		g.lead()
	case election.StopRequested:
		g.stop(e.Term, e.Peer)
		g.stoppedIfResting()
	case election.TenureLost, election.OfficeResigned:
		if s := a.acting; s != nil {
			g.notices = append(g.notices, func() { s.tell(SessionEvent{Kind: Lost, Term: uint64(e.Term)}) })
		}
		a.term, a.token, a.acting, a.stopping, a.retiring = 0, 0, nil, false, false
		g.reconsider() // What has become of the application during the tenure had to wait.
	default:
	}
}

// stop tells the application to stop. From now on it doesn't lead, for all who ask.
func (g *Group) stop(term election.Term, successor election.ID) {
	g.app.stopping = true
	g.publish()
	if s := g.app.acting; s != nil {
		stop := SessionEvent{Kind: Stop, Term: uint64(term), Successor: g.names.of(successor)}
		g.notices = append(g.notices, func() { s.tell(stop) })
	}
}

// log tells the operator what happens: a line for each change of who leads, and
// all the rest for those who want to know.
func (g *Group) log(e election.Event) {
	say := g.cfg.Log.Debug
	switch e.Kind {
	case election.TenureStarted, election.TenureLost, election.StopRequested, election.OfficeResigned, election.Recognized:
		say = g.cfg.Log.Info
	default:
	}
	say(e.Kind.String(), "peer", g.names.of(e.Peer), "term", uint64(e.Term))
}

// lead tells the oldest session that it may act as coordinator, once everybody
// can see that.
func (g *Group) lead() {
	if len(g.app.sessions) == 0 {
		return
	}
	s := g.app.sessions[0]
	g.app.acting = s
	e := SessionEvent{Kind: Lead, Term: uint64(g.app.term), Token: uint64(g.app.token)}
	g.notices = append(g.notices, func() { s.tell(e) })
}
