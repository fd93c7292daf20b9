//go:build go1.25

package client

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRunFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeAgent(t)
		nothing := func(context.Context, uint64) error { return nil }
		for _, c := range []struct{ group, at, want string }{
			{"other", defaultAddress, "cannot join group other: the agent responded with status 404"},
			{"", defaultAddress, "the name of the group must not be empty"},
			{
				"ledger", "127.0.0.1:7374", `the agent's address must be an http URL without a path, such as ` +
					`http://127.0.0.1:7374, or a Unix socket, such as unix:///run/conclave/agent.sock, got "127.0.0.1:7374"`,
			},
			{"ledger", "unix://run/conclave.sock", "the agent's address must be"},
			{"ledger", "https://127.0.0.1:7374", "the agent's address must be"},
			{"ledger", "http://127.0.0.1:7374/v1", "the agent's address must be"},
			{"ledger", "\x00", "the agent's address must be"},
		} {
			err := Run(t.Context(), c.group, nothing, fake.dialOption, At(c.at))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want %q", err, c.want)
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

func TestSilenceEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, session, c := startLeading(t, 0)
		time.Sleep(10 * maxSilence) // The fake agent sends comments.
		if c.ctx.Err() != nil {
			t.Fatal(context.Cause(c.ctx))
		}
		session.silence <- struct{}{}
		start := time.Now()
		wantError(t, c.awaitCause(t), errSilent)
		wantError(t, c.awaitCause(t), ErrAgentGone)
		if took := time.Since(start); took < maxSilence-time.Second || took > maxSilence {
			t.Fatalf("got the end after %s, want about %s", took, maxSilence)
		}
		c.result <- nil
	})
}

// A response without end must not keep the client from the next attempt.
func TestStalledErrorIsFollowedByAnotherAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeAgent(t)
		fake.stalls = 1
		start := time.Now()
		r := startRun(fake)
		fake.acceptSession(drainTimeout)
		if took := time.Since(start); took < maxSilence || took > 2*maxSilence {
			t.Fatalf("got the second attempt after %s, want about %s", took, maxSilence)
		}
		r.end()
	})
}

// The drain timeout may change while the session is open.
func TestDrainTimeoutChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r, session, c := startLeading(t, lease)
		session.send(t, "event: session\ndata: {\"session\":\"s1\",\"drainMillis\":60000}\n\n")
		start := time.Now()
		session.send(t, "event: stop\ndata: {\"term\":7}\n\n")
		wantError(t, c.awaitCause(t), ErrStop)
		session.awaitEnd(t)
		if took := time.Since(start); took < time.Minute {
			t.Errorf("got the end of the session after %s, want it after the new drain timeout", took)
		}
		c.result <- nil
		r.end()
	})
}

func TestRenewalsReuseTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, r, _, c := startLeading(t, lease)
		waitUntil(t, "the lease is renewed", func() bool { return fake.queryCount() > 4 })
		c.result <- nil
		wantError(t, r.awaitResult(), nil)
		fake.mu.Lock()
		defer fake.mu.Unlock()
		if fake.accepted != 2 {
			t.Fatalf("got %d connections, want 2", fake.accepted)
		}
	})
}

func TestProxyIsIgnored(t *testing.T) {
	if newTransport(nil).Proxy != nil {
		t.Fatal("the transport has a proxy")
	}
}

func TestRunLeaksNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeAgent(t)
		// Count the client's goroutines by their functions, because the server has some, too.
		clientGoroutines := func() int {
			stacks := make([]byte, 1<<20)
			text := string(stacks[:runtime.Stack(stacks, true)])
			return strings.Count(text, "client.(*session)") + strings.Count(text, "http.(*persistConn)") +
				strings.Count(text, "client.startTenure")
		}
		before := clientGoroutines()
		for term := uint64(7); term < 10; term++ {
			r := startRun(fake)
			session := fake.acceptSession(drainTimeout)
			fake.lead(session, term, minute)
			c := r.awaitCall(term)
			if term == 8 {
				session.sendStop(t, term)
				wantError(t, c.awaitCause(t), ErrStop)
			}
			r.cancel()
			c.result <- nil
			wantError(t, r.awaitResult(), context.Canceled)
		}
		waitUntil(t, "all goroutines have ended", func() bool { return clientGoroutines() <= before })
	})
}
