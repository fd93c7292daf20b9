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

func is(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestStopIsAnsweredWhenTheFunctionHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		r := newRun(s)
		session := s.opened(soon)
		s.leads(7, minute)
		session.lead(t, 7)
		c := r.called(7)
		session.stop(t, 7)
		is(t, c.cause(t), ErrStop)
		asked := s.questions()
		// Whatever else happens: nothing is answered before.
		session.tell(t, ":\n\n")
		if len(s.stops) > 0 {
			t.Fatal("the agent was told of a stop while the function was running")
		}
		c.result <- nil
		if term := await(t, s.stops); term != 7 {
			t.Fatal(term)
		}
		session.lost(t, 7)
		// The session stays, and the next tenure comes in it.
		s.leads(9, minute)
		session.lead(t, 9)
		r.called(9).result <- nil
		is(t, await(t, r.ended), nil)
		if s.questions() == asked {
			t.Fatal("the second tenure wasn't confirmed")
		}
	})
}

func TestWhatAFunctionReturnsTooLateIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		r := newRun(s)
		session := s.opened(soon)
		s.leads(7, minute)
		session.lead(t, 7)
		c := r.called(7)
		session.lost(t, 7)
		is(t, c.cause(t), ErrLost)
		c.result <- errors.New("couldn't flush")
		eventually(t, "it is logged", func() bool { return r.logs.contains("couldn't flush") })
		s.leads(8, minute)
		session.lead(t, 8)
		c = r.called(8)
		session.lost(t, 8)
		is(t, c.cause(t), ErrLost)
		c.result <- context.Cause(c.ctx)
		r.cancel()
		is(t, await(t, r.ended), context.Canceled)
		if r.logs.contains(ErrLost.Error()) {
			t.Fatal("that the role was lost is no error")
		}
	})
}

func TestEventsWaitForTheFunction(t *testing.T) {
	release := make(chan error)
	stuck := func(context.Context, uint64) error { return <-release }
	begun := func() *session {
		s := newSession(t.Context(), &agent{}, stuck)
		s.tenure = begin(t.Context(), 7, token(7), time.Time{}, stuck)
		return s
	}
	hear := func(s *session, kind string, term uint64) {
		is(t, s.hear(event{kind: kind, data: fmt.Appendf(nil, `{"term":%d,"token":%d}`, term, token(term))}), nil)
	}
	for _, c := range []struct {
		heard     []string
		cause     error
		owed, won uint64
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
		s := begun()
		for _, heard := range c.heard {
			kind, term, _ := strings.Cut(heard, " ")
			n, err := strconv.ParseUint(term, 10, 64)
			is(t, err, nil)
			hear(s, kind, n)
		}
		var won uint64
		if s.won != nil {
			won = s.won.Term
		}
		if !errors.Is(context.Cause(s.tenure.ctx), c.cause) || s.owed != c.owed || won != c.won || s.asking && c.cause != nil {
			t.Errorf("%v: cause %v, owed %d, won %d, asking %t", c.heard, context.Cause(s.tenure.ctx), s.owed, won, s.asking)
		}
		release <- nil
	}
}

func TestFunctionNeverRunsTwiceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		r := newRun(s)
		session := s.opened(soon)
		s.leads(7, minute)
		session.lead(t, 7)
		c := r.called(7)
		session.lost(t, 7)
		is(t, c.cause(t), ErrLost)
		s.leads(8, minute)
		session.lead(t, 8)
		// A stop is heard after the lead before it, and is not answered either.
		session.stop(t, 8)
		s.leads(9, minute)
		session.lead(t, 9)
		session.tell(t, ":\n\n")
		if len(r.calls)+len(s.stops) > 0 {
			t.Fatal("it went on while the function was running")
		}
		c.result <- nil
		r.called(9).result <- nil
		is(t, await(t, r.ended), nil)
	})
}

func TestRoleThatIsNotConfirmedIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		r := newRun(s)
		session := s.opened(soon)
		s.leads(6, minute) // another tenure
		session.lead(t, 7)
		eventually(t, "it asks again", func() bool { return s.questions() > 2 })
		s.follows("", 7)
		asked := s.questions()
		eventually(t, "it asks again", func() bool { return s.questions() > asked+1 })
		if len(r.calls) > 0 {
			t.Fatal("the function was called")
		}
		// It never began, so it has stopped.
		session.stop(t, 7)
		if term := await(t, s.stops); term != 7 {
			t.Fatal(term)
		}
		s.leads(8, minute)
		session.lead(t, 8)
		r.called(8).result <- nil
		is(t, await(t, r.ended), nil)
	})
}

func TestLeaseCountsFromBeforeTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		r := newRun(s)
		session := s.opened(soon)
		s.says(func() (int, string) {
			// A lease that is over when the answer arrives.
			time.Sleep(30 * time.Millisecond)
			return http.StatusOK, `{"group":"ledger","self":"a","coordinator":"a","leading":true,"term":7,"token":7340042,"remainingMillis":25}`
		})
		session.lead(t, 7)
		eventually(t, "it asks again", func() bool { return s.questions() > 3 })
		if len(r.calls) > 0 {
			t.Fatal("the function was called after its lease")
		}
		s.leads(7, minute)
		r.called(7).result <- nil
		is(t, await(t, r.ended), nil)
	})
}

func TestLeaseThatIsNotRenewedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, session, c := leading(t)
		asked := s.questions()
		// For longer than one lease.
		eventually(t, "it is renewed", func() bool { return s.questions() > asked+5 })
		if c.ctx.Err() != nil {
			t.Fatal(context.Cause(c.ctx))
		}
		stuck := make(chan struct{})
		s.says(func() (int, string) { <-stuck; return http.StatusOK, "" })
		is(t, c.cause(t), ErrNotRenewed)
		if !session.open() {
			t.Fatal("the session ended before the function")
		}
		c.result <- nil
		// The agent has to know, in case that it believes otherwise.
		await(t, session.gone)
		close(stuck)
		s.leads(7, minute)
		session = s.opened(soon)
		session.lead(t, 7)
		r.called(7).result <- nil
		is(t, await(t, r.ended), nil)
	})
}

func TestRenewalFindsTheTenureOver(t *testing.T) {
	for name, c := range map[string]struct {
		coordinator string
		term        uint64
		why         error
	}{
		"handed over":   {"a", 7, ErrStop},
		"taken":         {"e", 8, ErrLost},
		"nobody":        {"", 7, ErrLost},
		"another claim": {"a", 8, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r, session, call := leading(t)
				s.follows(c.coordinator, c.term)
				is(t, call.cause(t), c.why)
				call.result <- nil
				// The event that says so comes late, and is still answered.
				session.stop(t, 7)
				if term := await(t, s.stops); term != 7 {
					t.Fatal(term)
				}
				r.cancel()
				is(t, await(t, r.ended), context.Canceled)
			})
		})
	}
}

// TestASessionThatIsNotOpenRenewsNothing: the agent may know that before the stream
// has broken on this side.
func TestASessionThatIsNotOpenRenewsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, _, c := leading(t)
		s.says(func() (int, string) { return http.StatusNotFound, `{"error":"there is no such session"}` })
		is(t, c.cause(t), ErrLost)
		c.result <- nil
		r.cancel()
		is(t, await(t, r.ended), context.Canceled)
	})
}

func TestAnotherTenureDoesNotRenewThisOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, _, c := leading(t)
		s.leads(8, minute) // of an agent that was restarted, say
		is(t, c.cause(t), ErrLost)
		c.result <- nil
		r.cancel()
		is(t, await(t, r.ended), context.Canceled)
	})
}

func TestWithoutALeaseNothingIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		r := newRun(s)
		session := s.opened(soon)
		s.leads(7, 0)
		session.lead(t, 7)
		c := r.called(7)
		session.lost(t, 7)
		is(t, c.cause(t), ErrLost)
		if s.questions() != 1 {
			t.Fatal(s.questions(), "questions")
		}
		c.result <- nil
	})
}

func TestSessionStaysUntilTheFunctionHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		r := newRun(s)
		session := s.opened(soon)
		s.leads(7, minute)
		session.lead(t, 7)
		c := r.called(7)
		r.cancel()
		is(t, c.cause(t), context.Canceled)
		session.tell(t, ":\n\n")
		if !session.open() || len(r.ended) > 0 || newSession(c.ctx, &agent{}, nil).ctx.Err() != nil {
			t.Fatal("Run didn't wait for the function")
		}
		c.result <- errors.New("interrupted")
		is(t, await(t, r.ended), context.Canceled)
		await(t, session.gone)
	})
}

func TestFunctionThatDoesNotReturnLosesTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		r := newRun(s)
		session := s.opened(time.Millisecond)
		s.leads(7, minute)
		session.lead(t, 7)
		c := r.called(7)
		session.lost(t, 7)
		is(t, c.cause(t), ErrLost)
		await(t, session.gone)
		if len(s.sessions) > 0 {
			t.Fatal("it stands for election again while the function is stuck")
		}
		c.result <- nil
		session = s.opened(soon)
		s.leads(8, minute)
		session.lead(t, 8)
		r.called(8).result <- nil
		is(t, await(t, r.ended), nil)
	})
}

func TestFunctionThatReturnsGivesUpTheRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odd := errors.New("odd")
		for _, why := range []error{nil, odd} {
			s := newStand(t)
			r := newRun(s)
			session := s.opened(soon)
			s.leads(7, minute)
			session.lead(t, 7)
			r.called(7).result <- why
			is(t, await(t, r.ended), why)
			await(t, session.gone)
		}
	})
}

func TestFunctionThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		ended := make(chan error, 1)
		go func() {
			ended <- Run(t.Context(), "ledger", func(context.Context, uint64) error { runtime.Goexit(); return nil }, s.reached)
		}()
		session := s.opened(soon)
		s.leads(7, minute)
		session.lead(t, 7)
		is(t, await(t, ended), errExited)
	})
}
