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

// change is an event of a watch.
func change(id, coordinator string, term uint64) string {
	return fmt.Sprintf("id: %s\ndata: {\"group\":\"ledger\",\"self\":\"a\",\"coordinator\":%q,\"term\":%d}\n\n", id, coordinator, term)
}

// watched gives what a watch yields, one at a time.
func watched(t *testing.T, s *stand) (next func() string, cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	pull, stop := iter.Pull2(Watch(ctx, "ledger", s.reached))
	t.Cleanup(func() { cancel(); stop() })
	return func() string {
		state, err, ok := pull()
		switch {
		case !ok:
			return "end"
		case err != nil:
			is(t, err, ErrAgentGone)
			return "gone"
		}
		return fmt.Sprintf("%s %d", state.Coordinator, state.Term)
	}, cancel
}

func TestWatchResumesWithoutDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		next, cancel := watched(t, s)
		go func() {
			w := await(t, s.watches)
			w.text <- change("x-1", "e", 7) + change("x-2", "", 7)
			w.text <- ":\n\n" + change("x-3", "d", 8)
			close(w.hangUp)

			w = await(t, s.watches)
			if w.after != "x-3" {
				t.Errorf("resumed after %q", w.after)
			}
			// What was told already, and what says the same under another number.
			w.text <- change("x-2", "", 7) + change("x-3", "d", 8) + change("x-4", "d", 8) + change("x-5", "e", 9)
			close(w.hangUp)

			// A restart: other numbers, the same state, then another.
			w = await(t, s.watches)
			w.text <- change("y-1", "e", 9) + change("y-2", "a", 10)
		}()
		var got []string
		for range 5 {
			got = append(got, next())
		}
		cancel()
		got = append(got, next())
		if want := []string{"e 7", " 7", "d 8", "e 9", "a 10", "end"}; !slices.Equal(got, want) {
			t.Fatalf("%q", got)
		}
	})
}

func TestWatchSaysOnceThatTheAgentIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		next, _ := watched(t, s)
		go func() {
			w := await(t, s.watches)
			w.text <- change("x-1", "e", 7)
		}()
		if got := next(); got != "e 7" {
			t.Fatal(got)
		}
		s.kill()
		if got := next(); got != "gone" {
			t.Fatal(got)
		}
		go func() {
			s.start()
			w := await(t, s.watches)
			if w.after != "" {
				t.Error("nothing would be said if nothing has changed")
			}
			w.text <- change("x-1", "e", 7)
		}()
		// Also if it is the same: it is the news that the agent is back.
		if got := next(); got != "e 7" {
			t.Fatal(got)
		}
	})
}

func TestWatchRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		for group, complaint := range map[string]string{"other": "watch other: the agent answered 404", "": "no name"} {
			n := 0
			for _, err := range Watch(t.Context(), group, s.reached) {
				if n++; err == nil || !strings.Contains(err.Error(), complaint) {
					t.Error(err)
				}
			}
			if n != 1 {
				t.Errorf("%d errors", n)
			}
		}
	})
}

func TestWatchEndsWithItsLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		go func() {
			w := await(t, s.watches)
			w.text <- change("x-1", "e", 7)
			<-w.gone
			close(s.stops)
		}()
		for _, err := range Watch(t.Context(), "ledger", s.reached) {
			is(t, err, nil)
			break
		}
		await(t, s.stops)
	})
}

func TestLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		transport := newTransport()
		defer transport.CloseIdleConnections()
		a, err := connect("ledger", transport, []Option{s.reached})
		is(t, err, nil)
		ask := func() (State, error) { return a.leader(t.Context(), "") }
		s.follows("e", 7)
		state, err := ask()
		is(t, err, nil)
		if state != (State{Group: "ledger", Self: "a", Coordinator: "e", Term: 7}) {
			t.Fatal(state)
		}

		before := time.Now()
		s.leads(7, minute)
		state, err = ask()
		is(t, err, nil)
		if !state.Leading || state.Token != token(7) || state.Until.Before(before.Add(minute*time.Millisecond)) || state.Until.After(time.Now().Add(minute*time.Millisecond)) {
			t.Fatal(state)
		}

		for _, c := range []struct {
			code   int
			answer string
		}{
			{http.StatusServiceUnavailable, `{"error":"the agent has left the group"}`},
			{http.StatusOK, `{"group":"ledger","leading":false}`},
			{http.StatusServiceUnavailable, `{"group":"ledger","leading":true,"token":1}`},
			{http.StatusOK, `{"group":"other","leading":true,"token":1}`},
			{http.StatusOK, `<html>`},
			{http.StatusOK, ``},
			{http.StatusFound, `{"group":"ledger"}x`},
		} {
			s.says(func() (int, string) { return c.code, c.answer })
			if state, err := ask(); err == nil || state != (State{}) || !strings.Contains(err.Error(), fmt.Sprintf("answered %d", c.code)) {
				t.Errorf("%d %s: %v, %v", c.code, c.answer, state, err)
			}
		}
	})
}

func TestEventsAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"data: a\n\n":                              "||a;unexpected EOF",
		"event:x\r\nid: l-1\r\ndata: a\r\n\r\n":    "x|l-1|a;unexpected EOF",
		"data: a\ndata:  b\n\n":                    "||a\n b;unexpected EOF",
		": comment\n\nevent: x\n\ndata: a\n\n":     "||a;unexpected EOF",
		"retry: 3\nnews\ndata\ndata: a\n\n":        "||a;unexpected EOF",
		"data: cut off\n":                          "unexpected EOF",
		"":                                         "unexpected EOF",
		strings.Repeat("x", answerMax+1):           "bufio.Scanner: token too long",
		strings.Repeat("data: xxxxxxxx\n", 10_000): "an event of more than 65536 bytes",
	} {
		var got string
		err := scan(strings.NewReader(text), func() {}, func(e event) error {
			got += e.kind + "|" + e.id + "|" + string(e.data) + ";"
			return nil
		})
		if got += err.Error(); got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}

func TestPausesGrowAndAreBounded(t *testing.T) {
	var b backoff
	at := firstPause
	for range 10 {
		if d := b.draw(); d < at/2 || d > at {
			t.Fatalf("%s, want about %s", d, at)
		}
		at = min(2*at, longestPause)
	}
	b.reset()
	if d := b.draw(); d > firstPause {
		t.Fatal(d)
	}
}
