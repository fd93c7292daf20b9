package client

import (
	"context"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAgentThatRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		r := newRun(s)
		session := s.opened(soon)
		s.leads(7, minute)
		session.lead(t, 7)
		c := r.called(7)
		s.kill()
		is(t, c.cause(t), ErrAgentGone)
		is(t, c.cause(t), io.ErrUnexpectedEOF)
		s.start()
		// Not while the function runs.
		if len(s.sessions) > 0 {
			t.Fatal("a session was opened")
		}
		c.result <- nil
		session = s.opened(soon)
		s.leads(8, minute)
		session.lead(t, 8)
		r.called(8).result <- nil
		is(t, await(t, r.ended), nil)
	})
}

func TestAgentThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		s.kill()
		r := newRun(s)
		eventually(t, "it complains", func() bool { return r.logs.contains("connection refused") })
		s.start()
		s.opened(soon)
		r.cancel()
		is(t, await(t, r.ended), context.Canceled)
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		nothing := func(context.Context, uint64) error { return nil }
		for _, c := range []struct{ group, at, complaint string }{
			{"other", defaultAddress, "take part in other: the agent answered 404"},
			{"", defaultAddress, "the group has no name"},
			{"ledger", "127.0.0.1:7374", `the agent's address can't be "127.0.0.1:7374": it is like http://127.0.0.1:7374`},
			{"ledger", "https://127.0.0.1:7374", "can't be"},
			{"ledger", "http://127.0.0.1:7374/v1", "can't be"},
			{"ledger", "\x00", "can't be"},
		} {
			err := Run(t.Context(), c.group, nothing, s.reached, At(c.at))
			if err == nil || !strings.Contains(err.Error(), c.complaint) {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestAddressFromTheEnvironment(t *testing.T) {
	t.Setenv("CONCLAVE_AGENT", "nonsense")
	if _, err := Leader(t.Context(), "ledger"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Error(err)
	}
}

func TestNonsenseEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		r := newRun(s)
		session := s.opened(soon)
		session.tell(t, "event: news\ndata: {\"of\":\"a later version\"}\n\n")
		session.tell(t, "event: lead\ndata: nonsense\n\n")
		await(t, session.gone)
		s.opened(soon)
		if !r.logs.contains("nonsense") {
			t.Fatal("nobody was told")
		}
		r.cancel()
		is(t, await(t, r.ended), context.Canceled)
	})
}

func TestAgentThatFallsSilentIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		r := newRun(s)
		session := s.opened(soon)
		s.leads(7, 0)
		session.lead(t, 7)
		c := r.called(7)
		time.Sleep(10 * silenceMax) // The stand says all the time that it lives.
		if c.ctx.Err() != nil {
			t.Fatal(context.Cause(c.ctx))
		}
		session.silent <- struct{}{}
		began := time.Now()
		is(t, c.cause(t), errSilent)
		is(t, c.cause(t), ErrAgentGone)
		if took := time.Since(began); took < silenceMax-time.Second || took > silenceMax {
			t.Fatal(took)
		}
		c.result <- nil
	})
}

func TestRenewalsKeepTheirConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, _, c := leading(t)
		eventually(t, "it is renewed", func() bool { return s.questions() > 4 })
		c.result <- nil
		is(t, await(t, r.ended), nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.connections != 2 {
			t.Fatalf("%d connections", s.connections)
		}
	})
}

func TestNoProxyIsAsked(t *testing.T) {
	if newTransport().Proxy != nil {
		t.Fatal("an agent is never behind a proxy")
	}
}

func TestRunLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		// The server's own are told apart by what they run.
		mine := func() int {
			stacks := make([]byte, 1<<20)
			text := string(stacks[:runtime.Stack(stacks, true)])
			return strings.Count(text, "client.(*session)") + strings.Count(text, "http.(*persistConn)") + strings.Count(text, "client.begin")
		}
		before := mine()
		for term := uint64(7); term < 10; term++ {
			r := newRun(s)
			session := s.opened(soon)
			s.leads(term, minute)
			session.lead(t, term)
			c := r.called(term)
			if term == 8 {
				session.stop(t, term)
				is(t, c.cause(t), ErrStop)
			}
			r.cancel()
			c.result <- nil
			is(t, await(t, r.ended), context.Canceled)
		}
		eventually(t, "its goroutines have ended", func() bool { return mine() <= before })
	})
}
