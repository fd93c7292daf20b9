//go:build go1.25

package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func wantError(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestErrorAfterRevocationIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, r, session, c := startLeading(t, minute)
		session.sendLost(t, 7)
		wantError(t, c.awaitCause(t), ErrLost)
		c.result <- errors.New("cannot flush")
		waitUntil(t, "the error is logged", func() bool { return r.log.Contains("cannot flush") })
		fake.lead(session, 8, minute)
		c = r.awaitCall(8)
		session.sendLost(t, 8)
		wantError(t, c.awaitCause(t), ErrLost)
		c.result <- context.Cause(c.ctx)
		r.end()
		if r.log.Contains(ErrLost.Error()) {
			t.Fatal("the client logged the cause of the revocation as an error")
		}
	})
}

func TestEventsWhileTheFunctionRuns(t *testing.T) {
	release := make(chan error)
	block := func(context.Context, uint64) error { return <-release }
	newRunningSession := func() *session {
		s := newSession(t.Context(), &agent{clock: monotonicClock(), renewals: &renewals{ctx: t.Context()}}, block)
		s.tenure = startTenure(t.Context(), monotonicClock(), 7, token(7), 0, block)
		return s
	}
	handle := func(s *session, kind string, term uint64) {
		wantError(t,
			s.handleEvent(event{kind: kind, data: fmt.Appendf(nil, `{"term":%d,"token":%d}`, term, token(term))}), nil)
	}
	for _, c := range []struct {
		events                   []string
		cause                    error
		pendingStop, pendingLead uint64
	}{
		{[]string{"stop 7"}, ErrStop, 7, 0},
		{[]string{"lost 7"}, ErrLost, 0, 0},
		{[]string{"stop 7", "lost 7"}, ErrStop, 0, 0},
		{[]string{"lost 7", "stop 7"}, ErrLost, 7, 0},
		{[]string{"lost 6"}, nil, 0, 0},
		{[]string{"lead 7"}, nil, 0, 7},
		{[]string{"lead 8"}, ErrLost, 0, 8},
		{[]string{"stop 7", "lost 7", "lead 8"}, ErrStop, 0, 8},
		{[]string{"lost 7", "lead 8", "stop 8"}, ErrLost, 8, 0},
		{[]string{"lost 7", "lead 8", "lost 8"}, ErrLost, 0, 0},
		{[]string{"lost 7", "lead 8", "stop 8", "lost 8", "lead 9"}, ErrLost, 0, 9},
	} {
		s := newRunningSession()
		for _, e := range c.events {
			kind, term, _ := strings.Cut(e, " ")
			n, err := strconv.ParseUint(term, 10, 64)
			wantError(t, err, nil)
			handle(s, kind, n)
		}
		var pendingLead uint64
		if s.pendingLead != nil {
			pendingLead = s.pendingLead.Term
		}
		// The next tenure is renewed, too.
		mayQuery := c.cause == nil || strings.Contains(strings.Join(c.events, " "), "lead")
		if !errors.Is(context.Cause(s.tenure.ctx), c.cause) || s.pendingStop != c.pendingStop ||
			pendingLead != c.pendingLead || s.querying && !mayQuery {
			t.Errorf(
				"%v: got cause %v, pending stop %d, pending lead %d, querying %t, want cause %v, pending stop %d, pending lead %d",
				c.events, context.Cause(s.tenure.ctx), s.pendingStop, pendingLead, s.querying, c.cause,
				c.pendingStop, c.pendingLead)
		}
		release <- nil
	}
}

// TestNextTenureIsRenewedWhileTheFunctionReturns: the agent closes a session that doesn't answer lead.
func TestNextTenureIsRenewedWhileTheFunctionReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, r, session, c := startLeading(t, lease)
		session.sendLost(t, 7)
		wantError(t, c.awaitCause(t), ErrLost)
		fake.lead(session, 8, lease)
		const times = 20
		start, before := time.Now(), fake.queryCount()
		waitUntil(t, "the client renews the next tenure", func() bool { return fake.queryCount() >= before+times })
		if took, most := time.Since(start), times*lease*time.Millisecond/2; took > most {
			t.Errorf("the client has renewed %d times in %s, want at most %s", times, took, most)
		}
		if session.sendStop(t, 7); len(r.calls)+len(fake.stops) > 0 {
			t.Error("the client called the function again or confirmed a stop while the function was running")
		}
		c.result <- nil
		r.awaitCall(8).result <- nil
		wantError(t, r.awaitResult(), nil)
	})
}

func TestUnconfirmedTenureDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeAgent(t)
		r := startRun(fake)
		session := fake.acceptSession(drainTimeout)
		fake.setLeading(6, minute) // another tenure
		session.sendLead(t, 7)
		waitUntil(t, "the client queries again", func() bool { return fake.queryCount() > 2 })
		fake.setFollowing("", 7)
		before := fake.queryCount()
		waitUntil(t, "the client queries again", func() bool { return fake.queryCount() > before+1 })
		if len(r.calls) > 0 {
			t.Fatal("the function was called without confirmation")
		}
		// The function was never called, so the client confirms the stop at once.
		session.sendStop(t, 7)
		fake.awaitStop(7)
		fake.lead(session, 8, minute)
		r.awaitCall(8).result <- nil
		wantError(t, r.awaitResult(), nil)
	})
}

func TestExpiredLeaseEndsTheTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, r, session, c := startLeading(t, lease)
		before := fake.queryCount()
		// This takes longer than one lease.
		waitUntil(t, "the lease is renewed", func() bool { return fake.queryCount() > before+5 })
		if c.ctx.Err() != nil {
			t.Fatal(context.Cause(c.ctx))
		}
		blocked := make(chan struct{})
		fake.setResponse(func() (int, string) { <-blocked; return http.StatusOK, "" })
		wantError(t, c.awaitCause(t), ErrNotRenewed)
		if !session.isOpen() {
			t.Fatal("the session ended before the function returned")
		}
		c.result <- nil
		// The session ends, because the agent may assume that the function still acts.
		session.awaitEnd(t)
		close(blocked)
		fake.setLeading(7, minute)
		session = fake.acceptSession(drainTimeout)
		session.sendLead(t, 7)
		r.awaitCall(7).result <- nil
		wantError(t, r.awaitResult(), nil)
	})
}

func TestRenewalDetectsTheEndOfTheTenure(t *testing.T) {
	for name, c := range map[string]struct {
		coordinator string
		term        uint64
		cause       error
	}{
		"handed over":       {"a", 7, ErrStop},
		"other coordinator": {"e", 8, ErrLost},
		"no coordinator":    {"", 7, ErrLost},
		"another term":      {"a", 8, ErrLost},
		"another tenure":    {"", 8, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, r, session, call := startLeading(t, lease)
				if fake.setFollowing(c.coordinator, c.term); name == "another tenure" {
					fake.setLeading(c.term, minute) // for example, because the agent was restarted
				}
				wantError(t, call.awaitCause(t), c.cause)
				call.result <- nil
				// The stop event arrives later, and is still confirmed.
				session.sendStop(t, 7)
				fake.awaitStop(7)
				r.end()
			})
		})
	}
}

// TestTenureWithoutLeaseIsRenewed: the agent replaces an application that stops renewing.
func TestTenureWithoutLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, _, session, c := startLeading(t, 0)
		before := fake.queryCount()
		time.Sleep(10 * aliveInterval)
		if renewals := fake.queryCount() - before; renewals < 8 || renewals > 10 || c.ctx.Err() != nil {
			t.Fatalf("got %d renewals in %s, and %v", renewals, 10*aliveInterval, context.Cause(c.ctx))
		}
		session.sendLost(t, 7)
		wantError(t, c.awaitCause(t), ErrLost)
		c.result <- nil
	})
}

// TestSessionIsIntroduced: also if it never leads.
func TestSessionIsIntroduced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeAgent(t)
		r := startRun(fake)
		session := fake.acceptSession(drainTimeout)
		session.send(t, "event: session\ndata: {\"session\":\"s1\",\"drainMillis\":60000}\n\n")
		time.Sleep(time.Minute)
		if fake.queryCount() != 1 {
			t.Errorf("got %d queries, want 1", fake.queryCount())
		}
		r.end()
	})
}

// TestReasonWhyTheFunctionIsNotCalledIsLogged: the agent promises no time to lead in, or doesn't know the request.
func TestReasonWhyTheFunctionIsNotCalledIsLogged(t *testing.T) {
	const noTime = `{"group":"ledger","self":"a","coordinator":"a","leading":true,"term":7,"token":898,"remainingMillis":0}`
	for reason, response := range map[string]string{
		"drainMillis is 0": noTime, "the agent refuses to confirm it": "404 page not found",
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeAgent(t)
			r := startRun(fake)
			session := fake.acceptSession(0)
			fake.setResponse(func() (int, string) {
				if response == noTime {
					return http.StatusOK, response
				}
				return http.StatusNotFound, response
			})
			time.Sleep(time.Second)
			session.sendLead(t, 7)
			time.Sleep(time.Second)
			if n := strings.Count(r.log.String(), reason); n != 1 || len(r.calls) > 0 {
				t.Errorf("got %d lines that %s and %d calls, want 1 and none: %s", n, reason, len(r.calls), r.log.String())
			}
			r.end()
		})
	}
}

func TestSessionStaysUntilTheFunctionHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r, session, c := startLeading(t, minute)
		r.cancel()
		wantError(t, c.awaitCause(t), context.Canceled)
		session.send(t, ":\n\n")
		if !session.isOpen() || len(r.result) > 0 || newSession(c.ctx, &agent{}, nil).ctx.Err() != nil {
			t.Fatal("the session ended before the function returned")
		}
		c.result <- errors.New("interrupted")
		wantError(t, r.awaitResult(), context.Canceled)
		session.awaitEnd(t)
	})
}

func TestFunctionThatCallsGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeAgent(t)
		result := make(chan error, 1)
		go func() {
			result <- Run(t.Context(), "ledger",
				func(context.Context, uint64) error { runtime.Goexit(); return nil }, fake.dialOption)
		}()
		session := fake.acceptSession(drainTimeout)
		fake.lead(session, 7, minute)
		wantError(t, receive(t, "the result of Run", result), errGoexit)
	})
}
