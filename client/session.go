package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// queryInterval is the time between two queries while a new tenure isn't confirmed.
const queryInterval = 20 * time.Millisecond

// session is a stream from the agent. As long as it is open, the agent considers this
// process alive. One goroutine handles everything that happens (loop). Other goroutines
// read the stream, query the agent, and run the function; they report to loop.
//
// Nothing new starts while the function runs: a new tenure waits (pendingLead), and the
// agent waits for the confirmation that the function has stopped (pendingStop).
type session struct {
	agent  *agent
	lead   func(context.Context, uint64) error
	parent context.Context

	// ctx ends with the session. It doesn't end with parent, because the session stays
	// open until the function has returned.
	ctx         context.Context
	cancel      context.CancelFunc
	goroutines  sync.WaitGroup
	events      chan event
	streamEnded chan error
	results     chan queryResult

	// id is empty until the agent has opened the session.
	id                  string
	drainTimeout, lease time.Duration

	// tenure is nil unless the function runs.
	tenure *tenure
	// pendingLead is a tenure for which the function hasn't been called yet.
	pendingLead *eventData
	// pendingStop is the term for which the agent waits until the function has stopped, or 0.
	pendingStop uint64
	// prepared is the term of the election for which the function of Prepare was called, and unprepare ends its context.
	// It is nil otherwise.
	prepared  uint64
	unprepare context.CancelFunc
	// querying is set while a query is in progress, and failed if the last one has failed.
	querying, failed bool
	// introduced is set once a query has shown the agent that this session belongs to an
	// application: a stream alone may be a stray request.
	introduced bool
	// warned is set once it was logged why the function isn't called.
	warned bool
	// queryTimer fires when the next query is due. drainTimer fires when the function
	// should have returned. Both are nil if there is nothing to wait for.
	queryTimer, drainTimer <-chan time.Time
}

// eventData is the data of an event, of any kind.
type eventData struct {
	Session      string `json:"session"`
	DrainMillis  int64  `json:"drainMillis"`
	LeaseMillis  int64  `json:"leaseMillis"`
	WithinMillis int64  `json:"withinMillis"`
	Term         uint64 `json:"term"`
	Token        uint64 `json:"token"`
}

// queryResult is the result of agent.renew, sent a time before it, and received one after it.
type queryResult struct {
	sent, received time.Duration
	state          State
	err            error
}

var errDrainTimeout = errors.New("the function didn't return within the drain timeout")

func newSession(parent context.Context, a *agent, lead func(context.Context, uint64) error) *session {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	return &session{
		agent: a, lead: lead, parent: parent, ctx: ctx, cancel: cancel,
		events: make(chan event), streamEnded: make(chan error, 1), results: make(chan queryResult, 1),
	}
}

// run opens the session and returns when it has ended. It returns the outcome if the function returned before its
// context ended, and otherwise the error that ended the session.
func (s *session) run() (*outcome, error) {
	s.start(s.readStream)
	defer s.endPreparation(math.MaxUint64)
	result, err := s.loop()
	if s.tenure != nil {
		s.tenure.end(fmt.Errorf("%w: %w", ErrAgentGone, err))
		s.reportEnd()
	}
	s.cancel()
	s.goroutines.Wait()
	if s.tenure != nil {
		if o := s.closeTenure(<-s.tenure.returned); o.voluntary {
			result = &o
		}
	}
	return result, err
}

func (s *session) readStream() {
	_, err := s.agent.readEvents(s.ctx, "/session?renews=true", func(e event) error {
		select {
		case s.events <- e:
			return nil
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	})
	s.streamEnded <- err
}

func (s *session) loop() (*outcome, error) {
	for {
		var revoked, quit <-chan struct{}
		var returned <-chan outcome
		if s.tenure == nil {
			quit = s.parent.Done()
		} else {
			returned = s.tenure.returned
			if s.drainTimer == nil {
				revoked = s.tenure.ctx.Done()
			}
		}
		select {
		case e := <-s.events:
			if err := s.handleEvent(e); err != nil {
				return nil, err
			}
		case err := <-s.streamEnded:
			return nil, err
		case r := <-s.results:
			s.querying, s.failed = false, r.err != nil
			s.handleResult(r)
		case <-s.queryTimer:
			s.query()
		case <-revoked:
			s.drainTimer = time.After(s.drainTimeout)
		case <-s.drainTimer:
			return nil, errDrainTimeout
		case o := <-returned:
			if o = s.closeTenure(o); o.voluntary {
				return &o, nil
			}
			if err := s.afterReturn(o); err != nil {
				return nil, err
			}
		case <-quit:
			return nil, s.parent.Err()
		}
	}
}

// handleEvent handles an event of the agent. It ignores unknown kinds, which newer agents may send.
func (s *session) handleEvent(e event) error {
	var data eventData
	if err := json.Unmarshal(e.data, &data); err != nil {
		return fmt.Errorf("invalid event %.100q: %w", e.data, err)
	}
	switch e.kind {
	case "session":
		s.id = data.Session
		s.drainTimeout, s.lease = time.Duration(data.DrainMillis)*time.Millisecond,
			time.Duration(data.LeaseMillis)*time.Millisecond
		s.query()
	case "elect":
		s.prepare(data.Term, time.Duration(data.WithinMillis)*time.Millisecond)
	case "follow":
		s.endPreparation(data.Term)
	case "lead":
		s.revoke(data.Term-1, ErrLost)
		s.pendingLead = &data
		s.query()
	case "stop":
		s.revoke(data.Term, ErrStop)
		s.pendingStop = data.Term
		s.confirmStop()
	case "lost":
		s.revoke(data.Term, ErrLost)
		if s.pendingStop <= data.Term {
			s.pendingStop = 0
		}
	}
	return nil
}

// revoke ends all tenures up to a term.
func (s *session) revoke(term uint64, cause error) {
	if s.pendingLead != nil && s.pendingLead.Term <= term {
		s.pendingLead = nil
	}
	if s.tenure != nil && s.tenure.term <= term {
		s.tenure.end(cause)
		if errors.Is(cause, ErrLost) {
			s.reportEnd()
		}
	}
	if s.tenure == nil {
		s.endPreparation(term)
	}
}

// query queries the coordinator if there is a tenure to confirm or renew, or a session to
// introduce, unless a query is in progress. A pending tenure is renewed while the function of
// the former one returns, since the agent closes a session that doesn't answer.
func (s *session) query() {
	s.queryTimer = nil
	confirm := s.pendingLead != nil
	renew := s.tenure != nil && !s.tenure.over()
	introduce := s.tenure == nil && !s.introduced
	if s.querying || !confirm && !renew && !introduce {
		return
	}
	s.querying, s.introduced = true, true
	id, alone := s.id, !renew || s.failed
	s.start(func() { s.results <- s.agent.renew(s.ctx, id, alone) })
}

// start runs a function in a goroutine that the session waits for. It is WaitGroup.Go, which Go 1.23 doesn't have.
func (s *session) start(run func()) {
	s.goroutines.Add(1)
	go func() {
		defer s.goroutines.Done()
		run()
	}()
}

// handleResult updates the tenure, or starts the pending one if the agent confirms it.
func (s *session) handleResult(r queryResult) {
	switch {
	case s.tenure != nil && s.tenure.over():
		if s.pendingLead != nil {
			s.scheduleRenewal()
		}
	case s.tenure != nil && s.tenure.revoked():
		s.continueStopping(r)
	case s.tenure != nil:
		s.updateTenure(r)
	case s.pendingLead == nil || s.parent.Err() != nil:
	case r.err == nil && r.state.Token == s.pendingLead.Token && r.state.isLeadingAt(s.agent.clock.now()):
		s.report(s.pendingLead.Term, s.pendingLead.Token, r)
		s.tenure = startTenure(s.parent, s.agent.clock, s.pendingLead.Term, s.pendingLead.Token, r.state.until, s.lead)
		s.pendingLead = nil
		s.scheduleRenewal()
	default:
		// The query failed, or its result is older or newer than the event. If the
		// tenure has ended, the agent sends an event.
		s.warn(r)
		s.queryTimer = time.After(queryInterval)
	}
}

// warn logs why the function isn't called if a retry won't change it: the agent promises no time in which
// it could run, or refuses to confirm the tenure.
func (s *session) warn(r queryResult) {
	withoutTime := r.err == nil && r.state.Token == s.pendingLead.Token && s.drainTimeout == 0
	switch {
	case s.warned || !withoutTime && !isClientError(r.err):
		return
	case withoutTime:
		s.agent.log.Warn("cannot lead: the group's drainMillis is 0, so a handover doesn't wait for this process",
			"group", s.agent.group)
	default:
		s.agent.log.Warn("cannot lead: the agent refuses to confirm it; is it older than this client?", "group",
			s.agent.group, "error", r.err)
	}
	s.warned = true
}

// updateTenure renews the tenure, or ends it before the agent's event arrives.
func (s *session) updateTenure(r queryResult) {
	t := s.tenure
	switch {
	case isClientError(r.err):
		// The agent no longer has this session, so it considers the application dead.
		s.revoke(t.term, ErrLost)
	case r.err != nil:
		s.scheduleRenewal()
	case r.state.Leading && r.state.Token == t.token:
		s.report(t.term, t.token, r)
		t.renew(r.state.until)
		s.scheduleRenewal()
	case !r.state.Leading && r.state.Coordinator == r.state.Self && r.state.Term == t.term:
		// The agent still holds the office but may not act: it is handing over.
		t.end(ErrStop)
		s.continueStopping(r)
	default:
		s.revoke(t.term, ErrLost)
	}
}

// continueStopping renews the tenure while the function stops: the agent must not take this
// process for one that hangs, and the lease may end before the drain timeout.
func (s *session) continueStopping(r queryResult) {
	t := s.tenure
	switch {
	case isClientError(r.err) || r.err == nil && (r.state.Coordinator != r.state.Self || r.state.Term != t.term):
		s.reportEnd()
		return
	case r.err == nil:
		s.report(t.term, t.token, r)
	}
	s.scheduleRenewal()
}

// report passes a renewal to the function of OnRenewal.
func (s *session) report(term, token uint64, r queryResult) {
	if s.agent.onRenewal == nil {
		return
	}
	s.agent.onRenewal(Renewal{
		Self: r.state.Self, Term: term, Token: token, Sent: r.sent, Received: r.received, Until: r.state.until,
		Stopping: !r.state.Leading, Lease: s.lease, DrainTimeout: s.drainTimeout,
	})
}

// reportEnd passes the end of the tenure to the function of OnRenewal, also after the
// function of the tenure was asked to stop.
func (s *session) reportEnd() {
	if s.agent.onRenewal != nil && !s.tenure.lost {
		s.agent.onRenewal(Renewal{Term: s.tenure.term, Token: s.tenure.token, Ended: true})
	}
	s.tenure.lost = true
}

// scheduleRenewal sets the time of the next renewal.
func (s *session) scheduleRenewal() {
	s.queryTimer = time.After(renewalDelay(s.agent.clock.now(), s.tenure.renewInterval))
}

// afterReturn continues the session after a function whose context had ended has returned. An error ends the session.
func (s *session) afterReturn(o outcome) error {
	if s.parent.Err() != nil {
		return s.parent.Err()
	}
	if errors.Is(o.cause, ErrNotRenewed) {
		// The agent may still assume that the function acts as coordinator. It learns otherwise when the session ends.
		return o.cause
	}
	s.confirmStop()
	s.query()
	return nil
}

// closeTenure releases the tenure of a function that has returned.
func (s *session) closeTenure(o outcome) outcome {
	if !o.voluntary {
		s.agent.logReturnedError(s.tenure.token, o)
	}
	s.tenure.close()
	s.endPreparation(s.tenure.term)
	s.tenure, s.drainTimer, s.queryTimer = nil, nil, nil
	return o
}

// confirmStop notifies the agent that the function has stopped, if the agent waits for that and the function has
// returned. It retries until the agent responds, whatever the response is, or the session ends.
func (s *session) confirmStop() {
	if s.pendingStop == 0 || s.tenure != nil {
		return
	}
	term := s.pendingStop
	s.pendingStop = 0
	s.start(func() {
		var retry backoff
		for {
			err := s.agent.confirmStopped(s.ctx, s.id, term)
			var e *statusError
			if err == nil || errors.As(err, &e) || !retry.wait(s.ctx) {
				return
			}
		}
	})
}
