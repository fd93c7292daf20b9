package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/conclave-dev/conclave/internal/election"
)

// application is the program for which the agent takes part: what it holds open,
// and what it has been told.
type application struct {
	// bound: without a session it is dead. That is so from the start if it must
	// have one, and otherwise from its first session on.
	bound bool
	// well is what the probe found.
	well     bool
	sessions map[string]*Session
	// standing is what the Machine was told last.
	standing bool
	// term and token are those of the tenure, 0 without one.
	term  election.Term
	token election.Token
	// stopping: it was told to stop for a successor.
	stopping bool
}

func newApplication(bound bool) application {
	return application{bound: bound, well: true, standing: true, sessions: map[string]*Session{}}
}

func (a *application) close() {
	for _, s := range a.sessions {
		s.end()
	}
}

// alive reports whether it could be coordinator.
func (a *application) alive() bool { return a.well && (len(a.sessions) > 0 || !a.bound) }

// acting reports whether a session may still act as coordinator.
func (a *application) acting() bool {
	for _, s := range a.sessions {
		if s.acting {
			return true
		}
	}
	return false
}

// Session is what an application holds open as long as it lives.
type Session struct {
	group *Group
	id    string
	// acting: it was told to lead, and hasn't said that it stopped. It belongs to
	// the group's goroutine.
	acting bool

	mu     sync.Mutex
	events []SessionEvent
	more   chan struct{}
	ended  chan struct{}
	once   sync.Once
}

// Open begins a session.
func (g *Group) Open(ctx context.Context) (*Session, error) {
	s := &Session{
		group: g, id: fmt.Sprintf("%08x-%016x", g.cfg.Life, rand.Uint64()),
		more: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	err := g.ask(ctx, func() {
		g.app.bound = true
		g.app.sessions[s.id] = s
		g.reconsider()
		if g.app.term != 0 && !g.app.stopping {
			g.lead(s)
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
		s.mu.Lock()
		if len(s.events) > 0 {
			e := s.events[0]
			s.events = s.events[1:]
			s.mu.Unlock()
			return e, nil
		}
		s.mu.Unlock()
		select {
		case <-s.more:
		case <-s.ended:
			return SessionEvent{}, ErrClosed
		case <-ctx.Done():
			return SessionEvent{}, ctx.Err()
		}
	}
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

// closed takes a session away. One that was acting took the role with it, even
// if there is another one: that may stand again, for a new tenure.
func (g *Group) closed(s *Session) {
	if g.app.sessions[s.id] == nil {
		return
	}
	delete(g.app.sessions, s.id)
	if s.acting && g.app.standing {
		g.app.standing = false
		g.step(election.Input{Kind: election.Withdraw})
	}
	g.reconsider()
}

// reconsider tells the Machine whether the application lives, if that changed.
func (g *Group) reconsider() {
	alive := g.app.alive()
	if alive == g.app.standing {
		return
	}
	g.app.standing = alive
	kind := election.Withdraw
	if alive {
		kind = election.Stand
	}
	g.step(election.Input{Kind: kind})
}

// Probed takes what a probe of the application found.
func (g *Group) Probed(ctx context.Context, well bool) error {
	return g.ask(ctx, func() {
		g.app.well = well
		g.reconsider()
	})
}

// Stopped takes the application's word that it no longer acts as coordinator.
func (g *Group) Stopped(ctx context.Context, session string, term uint64) error {
	var refused error
	err := g.ask(ctx, func() {
		s := g.app.sessions[session]
		switch {
		case s == nil:
			refused = ErrNoSession
		case !g.app.stopping || !s.acting || uint64(g.app.term) != term:
			refused = ErrOtherTerm
		default:
			s.acting = false
			g.stoppedIfAll()
		}
	})
	if err != nil {
		return err
	}
	return refused
}

func (g *Group) stoppedIfAll() {
	if !g.app.acting() {
		g.step(election.Input{Kind: election.Stopped, Term: g.app.term})
	}
}

// told acts on an event of the Machine.
func (g *Group) told(e election.Event) {
	g.cfg.Meter.Told(e)
	g.log(e)
	a := &g.app
	switch e.Kind {
	case election.Tenure:
		a.term, a.token, a.stopping = e.Term, e.Token, false
		for _, s := range a.sessions {
			g.lead(s)
		}
	case election.Stop:
		a.stopping = true
		stop := SessionEvent{Kind: Stop, Term: uint64(e.Term), Successor: g.names.of(e.Peer)}
		for _, s := range a.sessions {
			if s.acting {
				g.notices = append(g.notices, func() { s.tell(stop) })
			}
		}
		g.stoppedIfAll()
	case election.Lost, election.Resigns:
		for _, s := range a.sessions {
			if s.acting {
				s.acting = false
				g.notices = append(g.notices, func() { s.tell(SessionEvent{Kind: Lost, Term: uint64(e.Term)}) })
			}
		}
		a.term, a.token, a.stopping = 0, 0, false
	default:
	}
}

// log tells the operator what happens: a line for each change of who leads, and
// all the rest for those who want to know.
func (g *Group) log(e election.Event) {
	say := g.cfg.Log.Debug
	switch e.Kind {
	case election.Tenure, election.Lost, election.Stop, election.Resigns, election.Recognised:
		say = g.cfg.Log.Info
	default:
	}
	say(e.Kind.String(), "peer", g.names.of(e.Peer), "term", uint64(e.Term))
}

// lead tells an application that it may act as coordinator, once everybody can
// see that.
func (g *Group) lead(s *Session) {
	s.acting = true
	e := SessionEvent{Kind: Lead, Term: uint64(g.app.term), Token: uint64(g.app.token)}
	g.notices = append(g.notices, func() { s.tell(e) })
}
