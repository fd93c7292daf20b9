package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// loop repeats a request on each of a number of connections, like clients that ignore the responses. It returns how
// many requests had each status after a time.
func loop(t *testing.T, handler http.Handler, target string, connections int, during time.Duration) map[int]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	var mu sync.Mutex
	codes := map[int]int{}
	var clients sync.WaitGroup
	for range connections {
		clients.Go(func() {
			for {
				response := httptest.NewRecorder()
				handler.ServeHTTP(response, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1"+target, nil))
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				codes[response.Code]++
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	return codes
}

// TestLoopsAreSlowedDown: as many connections as the local API permits, each with one request after the other. The
// follower responds to /leader with the status 503.
func TestLoopsAreSlowedDown(t *testing.T) {
	for _, c := range []struct {
		target                     string
		code, responses, tolerance int
		refused                    bool
	}{
		{"/v1/groups/ledger/leader", http.StatusServiceUnavailable, 500*10 + 50, 10, false},
		{"/v1/groups/ledger/journal", http.StatusOK, 50*10 + 10, 10, true},
		{"/healthz", http.StatusOK, 100*10 + 20, 10, true},
		{"/v1/groups/ledger/leder", http.StatusNotFound, 50*10 + 10, 10, true},
		{"/v1/groups/ledger/step-down", http.StatusMethodNotAllowed, 50*10 + 10, 10, true},
	} {
		t.Run(c.target, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				codes := loop(t, New(newFakeGroup(), nil), c.target, localLimits.Unpinned, 10*time.Second)
				if got := codes[c.code]; got < c.responses-c.tolerance || got > c.responses {
					t.Errorf("got %v in 10 s, want about %d with status %d", codes, c.responses, c.code)
				}
				refused := codes[http.StatusTooManyRequests]
				if most := localLimits.Unpinned * 10; refused > most || refused > 0 != c.refused {
					t.Errorf("got %d refusals, want some: %t, at most %d", refused, c.refused, most)
				}
			})
		})
	}
}

// TestLoopDelaysNoOtherKind: while clients ask for the coordinator in a loop, a session is renewed, and a probe is
// answered, at once.
func TestLoopDelaysNoOtherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := New(newFakeGroup(), nil)
		var loops sync.WaitGroup
		defer loops.Wait()
		for _, target := range []string{"/v1/groups/ledger/leader", "/v1/groups/ledger/status"} {
			loops.Go(func() { loop(t, handler, target, localLimits.Unpinned, 5*time.Second) })
		}
		for range 50 {
			time.Sleep(90 * time.Millisecond)
			for _, target := range []string{"/v1/groups/ledger/leader?session=1", "/healthz"} {
				begin := time.Now()
				response := httptest.NewRecorder()
				handler.ServeHTTP(response,
					httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+target, nil))
				if waited := time.Since(begin); waited > 0 || response.Code == http.StatusTooManyRequests {
					t.Fatalf("%s: got %d after %s, want a response at once", target, response.Code, waited)
				}
			}
		}
	})
}

// TestRenewals: each session of a request gets the result that it would get alone, one group that stands still delays
// the others for a moment only, and many sessions count as several requests.
func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := newLanes()
		renew := func(sessions ...string) (code int, body string) {
			w := httptest.NewRecorder()
			text := `{"sessions":[` + strings.Join(sessions, ",") + `]}`
			routes(newFakeGroup(), nil, limits)["/v1/renewals"].ServeHTTP(w,
				httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/renewals", strings.NewReader(text)))
			return w.Code, w.Body.String()
		}
		session := func(group, id string) string { return fmt.Sprintf(`{"group":%q,"session":%q}`, group, id) }
		start := time.Now()
		code, body := renew(session("ledger", "s1"), session("other", "s1"), session("ledger", "s2"),
			session("ledger", "stuck"), session("expected", "s1"))
		for _, want := range []string{
			`{"results":[{"status":503,"leader":{"group":"ledger",`, `{"status":404,"error":"group \"other\" not found`,
			`{"status":404,"error":"session not found"`,
			`{"status":503,"error":"the group doesn't respond in time: renew this session alone"}`,
			`{"status":503,"error":"group expected is not running`, `"reason":"NoDocument"`,
		} {
			if code != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("got %d %s, want 200 and %s", code, body, want)
			}
		}
		equal(t, renewalTimeout, time.Since(start))
		time.Sleep(time.Second)
		before := limits.sessions.limiter.Tokens()
		code, _ = renew(slices.Repeat([]string{session("ledger", "s1")}, renewalsMax)...)
		equal(t, http.StatusOK, code)
		equal(t, 1+renewalsMax/renewalsPerTurn, int(before-limits.sessions.limiter.Tokens()))
		code, body = renew(slices.Repeat([]string{session("ledger", "s1")}, renewalsMax+1)...)
		equal(t, http.StatusBadRequest, code)
		equal(t, `{"error":"sessions must have 1 to 100 elements, got 101"}`+"\n", body)
	})
}
