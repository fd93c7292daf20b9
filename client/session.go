package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// askAgain is the time between two questions whether a role that was won is
// confirmed, while it isn't.
const askAgain = 20 * time.Millisecond

// session is the stream that the agent takes for this process's sign of life,
// and all that follows from what is said in it. One goroutine decides (run);
// others read the stream, ask the agent, and run the function, and tell it.
//
// While the function runs, whatever has happened, nothing else is begun: a role
// that is won meanwhile waits (won), and so does the agent for the word that it
// has stopped (owed).
type session struct {
	agent  *agent
	lead   func(context.Context, uint64) error
	parent context.Context

	// ctx ends with the session. It doesn't with the caller's: the session stays
	// open until the function has returned.
	ctx     context.Context
	hangUp  context.CancelFunc
	helpers sync.WaitGroup
	events  chan event
	broken  chan error
	answers chan answer

	// id is empty until the agent has opened the session.
	id    string
	drain time.Duration

	// tenure is the function that runs, nil if none does.
	tenure *tenure
	// won is a role that the function hasn't taken up.
	won *notice
	// owed is the term in which the agent waits for the function to stop, 0 if it doesn't.
	owed uint64
	// asking: a question is on its way.
	asking bool
	// ask is when to put the next, overdue when a function that was told to return
	// should have. Both are nil when there is nothing to wait for.
	ask, overdue <-chan time.Time
}

// notice is the data of the events, of all kinds.
type notice struct {
	Session     string `json:"session"`
	DrainMillis int64  `json:"drainMillis"`
	Term        uint64 `json:"term"`
	Token       uint64 `json:"token"`
}

// answer is what came of a question who leads.
type answer struct {
	state State
	err   error
}

var errOverdue = errors.New("the function didn't return within the drain time")

func newSession(parent context.Context, a *agent, lead func(context.Context, uint64) error) *session {
	ctx, hangUp := context.WithCancel(context.WithoutCancel(parent))
	return &session{
		agent: a, lead: lead, parent: parent, ctx: ctx, hangUp: hangUp,
		events: make(chan event), broken: make(chan error, 1), answers: make(chan answer, 1),
	}
}

// run is the session's life. It gives the outcome of a function that returned
// by itself, or why the session is over.
func (s *session) run() (*outcome, error) {
	s.helpers.Go(s.listen)
	outcome, err := s.decide()
	if s.tenure != nil {
		s.tenure.end(fmt.Errorf("%w: %w", ErrAgentGone, err))
	}
	s.hangUp()
	s.helpers.Wait()
	if s.tenure != nil {
		if o := s.finish(<-s.tenure.ended); o.leading {
			outcome = &o
		}
	}
	return outcome, err
}

// listen reads the stream.
func (s *session) listen() {
	_, err := s.agent.stream(s.ctx, "/session", "", func(e event) error {
		select {
		case s.events <- e:
			return nil
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	})
	s.broken <- err
}

func (s *session) decide() (*outcome, error) {
	for {
		var told, quit <-chan struct{}
		var ended <-chan outcome
		if s.tenure == nil {
			quit = s.parent.Done()
		} else {
			ended = s.tenure.ended
			if s.overdue == nil {
				told = s.tenure.ctx.Done()
			}
		}
		select {
		case e := <-s.events:
			if err := s.hear(e); err != nil {
				return nil, err
			}
		case err := <-s.broken:
			return nil, err
		case a := <-s.answers:
			s.asking = false
			s.weigh(a)
		case <-s.ask:
			s.inquire()
		case <-told:
			s.overdue = time.After(s.drain)
		case <-s.overdue:
			return nil, errOverdue
		case o := <-ended:
			if o = s.finish(o); o.leading {
				return &o, nil
			}
			if err := s.resume(o); err != nil {
				return nil, err
			}
		case <-quit:
			return nil, s.parent.Err()
		}
	}
}

// hear takes an event. Kinds that it doesn't know are those of newer agents.
func (s *session) hear(e event) error {
	var n notice
	if err := json.Unmarshal(e.data, &n); err != nil {
		return fmt.Errorf("the agent sent %.100q: %w", e.data, err)
	}
	switch e.kind {
	case "session":
		s.id, s.drain = n.Session, time.Duration(n.DrainMillis)*time.Millisecond
	case "lead":
		s.revoke(n.Term-1, ErrLost)
		s.won = &n
		s.inquire()
	case "stop":
		s.revoke(n.Term, ErrStop)
		s.owed = n.Term
		s.confirm()
	case "lost":
		s.revoke(n.Term, ErrLost)
		if s.owed <= n.Term {
			s.owed = 0
		}
	}
	return nil
}

// revoke ends what there is of tenures up to a term.
func (s *session) revoke(term uint64, why error) {
	if s.won != nil && s.won.Term <= term {
		s.won = nil
	}
	if s.tenure != nil && s.tenure.term <= term {
		s.tenure.end(why)
	}
}

// inquire asks who leads, if that matters and nobody has asked already.
func (s *session) inquire() {
	s.ask = nil
	waits := s.tenure == nil && s.won != nil
	acts := s.tenure != nil && !s.tenure.told()
	if s.asking || !waits && !acts {
		return
	}
	s.asking = true
	id := s.id
	s.helpers.Go(func() {
		state, err := s.agent.leader(s.ctx, id)
		s.answers <- answer{state, err}
	})
}

// weigh takes an answer for what it says about the tenure, or about the one to come.
func (s *session) weigh(a answer) {
	switch {
	case s.tenure != nil && s.tenure.told():
	case s.tenure != nil:
		s.extend(a)
	case s.won == nil || s.parent.Err() != nil:
	case a.err == nil && a.state.Token == s.won.Token && a.state.leadsNow():
		s.tenure = begin(s.parent, s.won.Term, s.won.Token, a.state.Until, s.lead)
		s.won = nil
		s.schedule()
	default:
		// The agent couldn't answer, or the answer is of another moment than the
		// event. If the role is lost there is an event on its way that says so.
		s.ask = time.After(askAgain)
	}
}

// extend renews the tenure, or finds that it has come to its end before the
// event that says so.
func (s *session) extend(a answer) {
	t := s.tenure
	switch {
	case misled(a.err):
		// The agent knows nothing of this session any more: the application is dead to it.
		t.end(ErrLost)
	case a.err != nil:
		s.schedule()
	case a.state.Leading && a.state.Token == t.token:
		t.renew(a.state.Until)
		s.schedule()
	case !a.state.Leading && a.state.Coordinator == a.state.Self && a.state.Term == t.term:
		// It still holds the role, and may not act: it is being handed over.
		t.end(ErrStop)
	default:
		t.end(ErrLost)
	}
}

// schedule sets when to renew next. Without a lease there is nothing to renew.
func (s *session) schedule() {
	if s.tenure.pace > 0 {
		s.ask = time.After(s.tenure.pace)
	}
}

// resume goes on after a function has returned that was told to. An error ends the session.
func (s *session) resume(o outcome) error {
	if s.parent.Err() != nil {
		return s.parent.Err()
	}
	if errors.Is(o.cause, ErrNotRenewed) {
		// The agent may believe that this process still leads, so it has to be told
		// that it doesn't. That takes the end of the session.
		return o.cause
	}
	s.confirm()
	s.inquire()
	return nil
}

// finish closes the tenure of a function that has returned.
func (s *session) finish(o outcome) outcome {
	if !o.leading {
		s.agent.complain(s.tenure.token, o)
	}
	s.tenure.close()
	s.tenure, s.overdue, s.ask = nil, nil, nil
	return o
}

// confirm tells the agent that the function has stopped, if it waits for that
// and the function has. It tries until the session ends or an answer is there:
// what the agent has against it changes nothing here.
func (s *session) confirm() {
	if s.owed == 0 || s.tenure != nil {
		return
	}
	term := s.owed
	s.owed = 0
	s.helpers.Go(func() {
		var pause backoff
		for {
			err := s.agent.stopped(s.ctx, s.id, term)
			var r *refusal
			if err == nil || errors.As(err, &r) || !pause.pause(s.ctx) {
				return
			}
		}
	})
}
