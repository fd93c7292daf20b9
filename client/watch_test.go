//go:build go1.25

package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watchEvent returns an event of a watch.
func watchEvent(coordinator string, term uint64) string {
	return fmt.Sprintf("data: {\"group\":\"ledger\",\"self\":\"a\",\"coordinator\":%q,\"term\":%d}\n\n", coordinator, term)
}

// startWatch starts a watch, and returns a function that returns what it yields next.
func startWatch(t *testing.T, fake *fakeAgent) (next func() string, cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	pull, stop := iter.Pull2(Watch(ctx, "ledger", fake.dialOption))
	t.Cleanup(func() { cancel(); stop() })
	return func() string {
		state, err, ok := pull()
		switch {
		case !ok:
			return "end"
		case err != nil:
			wantError(t, err, ErrAgentGone)
			return "gone"
		}
		return fmt.Sprintf("%s %d", state.Coordinator, state.Term)
	}, cancel
}

func TestWatchContinuesWithoutDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeAgent(t)
		next, cancel := startWatch(t, fake)
		go func() {
			w := fake.awaitWatch()
			w.text <- watchEvent("e", 7) + watchEvent("", 7)
			w.text <- ":\n\n" + watchEvent("d", 8)
			close(w.hangUp)

			// A stream begins with the present state, which may be the last one.
			w = fake.awaitWatch()
			w.text <- watchEvent("d", 8) + watchEvent("d", 8) + watchEvent("e", 9)
			close(w.hangUp)

			w = fake.awaitWatch()
			w.text <- watchEvent("a", 10)
		}()
		var got []string
		for range 5 {
			got = append(got, next())
		}
		cancel()
		got = append(got, next())
		if want := []string{"e 7", " 7", "d 8", "e 9", "a 10", "end"}; !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func TestBreakEndsTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeAgent(t)
		go func() {
			w := fake.awaitWatch()
			w.text <- watchEvent("e", 7)
			<-w.clientGone
			close(fake.stops)
		}()
		for _, err := range Watch(t.Context(), "ledger", fake.dialOption) {
			wantError(t, err, nil)
			break
		}
		receive(t, "the end of the watch", fake.stops)
	})
}

func TestLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeAgent(t)
		a, err := newAgent("ledger", []Option{fake.dialOption})
		wantError(t, err, nil)
		defer a.http.CloseIdleConnections()
		query := func() (State, error) { return a.queryLeader(t.Context(), nil) }
		fake.setFollowing("e", 7)
		state, err := query()
		wantError(t, err, nil)
		if state != (State{Group: "ledger", Self: "a", Coordinator: "e", Term: 7}) {
			t.Fatal(state)
		}

		before := time.Now()
		fake.setLeading(7, minute)
		state, err = query()
		wantError(t, err, nil)
		if !state.Leading || state.Token != token(7) || state.Until.Before(before.Add(minute*time.Millisecond)) ||
			state.Until.After(time.Now().Add(minute*time.Millisecond)) {
			t.Fatal(state)
		}

		for _, c := range []struct {
			status int
			body   string
		}{
			{http.StatusServiceUnavailable, `{"error":"the agent has left the group"}`},
			{http.StatusOK, `{"group":"ledger","leading":false}`},
			{http.StatusServiceUnavailable, `{"group":"ledger","leading":true,"token":1}`},
			{http.StatusOK, `{"group":"other","leading":true,"token":1}`},
			{http.StatusOK, `<html>`},
			{http.StatusOK, ``},
			{http.StatusFound, `{"group":"ledger"}x`},
		} {
			fake.setResponse(func() (int, string) { return c.status, c.body })
			if state, err := query(); err == nil || state != (State{}) ||
				!strings.Contains(err.Error(), fmt.Sprintf("status %d", c.status)) {
				t.Errorf("response %d %s: got %v and error %v, want an error with the status", c.status, c.body, state, err)
			}
		}
	})
}

func TestScanEvents(t *testing.T) {
	for text, want := range map[string]string{
		"data: a\n\n":                              "|a;unexpected EOF",
		"event:x\r\nid: l-1\r\ndata: a\r\n\r\n":    "x|a;unexpected EOF",
		"data: a\ndata:  b\n\n":                    "|a\n b;unexpected EOF",
		": comment\n\nevent: x\n\ndata: a\n\n":     "|a;unexpected EOF",
		"retry: 3\nunknown\ndata\ndata: a\n\n":     "|a;unexpected EOF",
		"data: cut off\n":                          "unexpected EOF",
		"":                                         "unexpected EOF",
		strings.Repeat("x", maxResponse+1):         "bufio.Scanner: token too long",
		strings.Repeat("data: xxxxxxxx\n", 10_000): "event must have at most 65536 bytes",
	} {
		var got string
		err := scanEvents(strings.NewReader(text), func() {}, func(e event) error {
			got += e.kind + "|" + string(e.data) + ";"
			return nil
		})
		if got += err.Error(); got != want {
			t.Errorf("%.40q: got %q, want %q", text, got, want)
		}
	}
}

func TestBackoffGrowsUpToALimit(t *testing.T) {
	var b backoff
	want := minDelay
	for range 10 {
		if d := b.nextDelay(); d < want/2 || d > want {
			t.Fatalf("got delay %s, want between %s and %s", d, want/2, want)
		}
		want = min(2*want, maxDelay)
	}
	b.reset()
	if d := b.nextDelay(); d > minDelay {
		t.Fatalf("after reset: got delay %s, want at most %s", d, minDelay)
	}
}
