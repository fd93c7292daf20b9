//go:build go1.25

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTenureIsRenewedUntilTheFunctionHasReturned: an agent that hears nothing more gives up
// the office, although the function still stops.
func TestTenureIsRenewedUntilTheFunctionHasReturned(t *testing.T) {
	for name, stop := range map[string]func(*fakeAgent, *clientRun, *stream){
		"stop": func(fake *fakeAgent, r *clientRun, s *stream) {
			fake.setResponse(func() (int, string) {
				return http.StatusServiceUnavailable,
					`{"group":"ledger","self":"a","coordinator":"a","leading":false,"term":7,"remainingMillis":400}`
			})
			s.sendStop(r.t, 7)
		},
		"end of the program": func(_ *fakeAgent, r *clientRun, _ *stream) { r.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, renewals := newFakeAgent(t), make(chan Renewal, 1000)
				r := startRun(fake, OnRenewal(func(renewal Renewal) { renewals <- renewal }))
				session := fake.acceptSession(drainTimeout)
				fake.lead(session, 7, lease)
				call := r.awaitCall(7)
				if first := <-renewals; first.Stopping || first.Until-first.Sent != lease*time.Millisecond {
					t.Fatalf("got %+v, want a first renewal of %d ms", first, lease)
				}
				stop(fake, r, session)
				<-call.ctx.Done()
				for len(renewals) > 0 {
					<-renewals
				}
				for range 20 { // longer than the lease
					renewal := <-renewals
					if stopping := name == "stop"; renewal.Stopping != stopping || renewal.Token != token(7) ||
						renewal.Until <= renewal.Sent || renewal.Received < renewal.Sent ||
						renewal.DrainTimeout != drainTimeout || renewal.Lease != lease*time.Millisecond {
						t.Fatalf("got %+v, want a renewal for a function that stops", renewal)
					}
				}
				session.sendLost(t, 7)
				renewal := <-renewals
				for !renewal.Ended {
					renewal = <-renewals
				}
				call.result <- nil
				r.end()
			})
		})
	}
}

// TestSessionsRenewTogether: the sessions of a program share requests, although they began to lead at different
// moments.
func TestSessionsRenewTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeAgent(t)
		const sessions, moments = 20, 4 // Sessions that began at different moments may use all of those within an interval.
		var runs []*clientRun
		var calls []*call
		for i := range sessions {
			r := startRun(fake)
			session := fake.acceptSession(drainTimeout)
			fake.lead(session, 7, lease)
			runs, calls = append(runs, r), append(calls, r.awaitCall(7))
			time.Sleep(time.Duration(7*i) * time.Millisecond)
		}
		time.Sleep(time.Second)
		before := len(fake.requests())
		time.Sleep(10 * time.Second)
		batches := fake.requests()[before:]
		renewals, requests := 0, len(batches)
		for _, count := range batches {
			renewals += count
		}
		if wanted := 10 * sessions * 4 * 1000 / lease; renewals < wanted*9/10 || renewals > wanted*11/10 {
			t.Errorf("got %d renewals in 10 s, want about %d, four per lease and session", renewals, wanted)
		}
		if requests > renewals/sessions*(moments+1) {
			t.Errorf("got %d requests for %d renewals of %d sessions, want shared requests", requests, renewals, sessions)
		}
		for i, c := range calls {
			wantError(t, context.Cause(c.ctx), nil)
			runs[i].cancel()
			c.result <- nil
			wantError(t, runs[i].awaitResult(), context.Canceled)
		}
		if len(fake.connections.renewals) > 0 {
			t.Error("without sessions, the connection for renewals remains")
		}
	})
}

// TestFailedRenewalIsRepeatedAlone: a session whose group responds too slowly for requests with others keeps its
// tenure.
func TestFailedRenewalIsRepeatedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeAgent(t)
		fake.stuck = map[string]bool{"s2": true}
		for range 3 {
			r := startRun(fake)
			session := fake.acceptSession(drainTimeout)
			fake.lead(session, 7, lease)
			call := r.awaitCall(7)
			defer func() {
				wantError(t, context.Cause(call.ctx), nil)
				call.result <- nil
			}()
		}
		time.Sleep(10 * time.Second)
	})
}

// TestBusyAgentEndsNoTenure: the status 429 says nothing about the session.
func TestBusyAgentEndsNoTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, r, _, call := startLeading(t, lease)
		fake.mu.Lock()
		fake.busy = 2
		fake.mu.Unlock()
		time.Sleep(10 * time.Second)
		wantError(t, context.Cause(call.ctx), nil)
		call.result <- nil
		wantError(t, r.awaitResult(), nil)
	})
}

// TestResultsOfRenewals: one request is for a hundred sessions at most, and each session gets its own result.
func TestResultsOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeAgent(t)
		fake.setLeading(7, lease)
		fake.gone = map[string]bool{"s3": true}
		a, err := newAgent("ledger", []Option{fake.dialOption})
		wantError(t, err, nil)
		defer fake.connections.join(a)()
		defer fake.connections.join(a)() // Otherwise renewals don't wait for others.
		const count = 2*renewalsMax + 1
		var results [count]chan queryResult
		for i := range results {
			results[i] = make(chan queryResult, 1)
			go func() { results[i] <- a.renew(t.Context(), fmt.Sprint("s", i), false) }()
		}
		for i, result := range results {
			switch r := <-result; {
			case i == 3 && !isClientError(r.err):
				t.Errorf("got %v for the session that is gone, want an error of the client", r.err)
			case i != 3 && (r.err != nil || r.state.Token != token(7) || r.state.until != r.sent+lease*time.Millisecond):
				t.Errorf("session %d: got %+v, want a renewal", i, r)
			}
		}
		batches := fake.requests()
		slices.Sort(batches)
		if !slices.Equal(batches, []int{1, renewalsMax, renewalsMax}) {
			t.Errorf("got requests for %d sessions, want at most %d in each", batches, renewalsMax)
		}
	})
}

func TestRenewalsAreDueTogether(t *testing.T) {
	for _, interval := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 95 * time.Millisecond, time.Second} {
		moments := map[time.Duration]bool{}
		var sum time.Duration
		const starts = 1000
		for i := range starts {
			now := time.Hour + time.Duration(i)*interval/starts
			delay := renewalDelay(now, interval)
			if delay <= 0 || delay < interval/2 || delay > interval*3/2 {
				t.Fatalf("got a delay of %s for an interval of %s", delay, interval)
			}
			moments[now+delay] = true
			sum += delay
		}
		if mean := sum / starts; mean < interval*4/5 || mean > interval*6/5 || len(moments) > 7 {
			t.Errorf("interval %s: got a mean of %s and %d moments, want one moment for many sessions",
				interval, mean, len(moments))
		}
	}
}

// serveRenewals responds for each session as to a query for the coordinator.
func (f *fakeAgent) serveRenewals(w http.ResponseWriter, r *http.Request) {
	var request struct{ Sessions []renewalRequest }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	f.queries++
	f.batches = append(f.batches, len(request.Sessions))
	respond, busy := f.respond, f.busy > 0
	f.busy--
	f.mu.Unlock()
	if busy {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	results := make([]map[string]any, len(request.Sessions))
	for i, session := range request.Sessions {
		status, body := respond()
		if f.gone[session.Session] {
			status, body = http.StatusNotFound, "no such session"
		}
		if f.stuck[session.Session] && len(results) > 1 {
			status, body = http.StatusServiceUnavailable, "too late"
		}
		results[i] = map[string]any{"status": status}
		if strings.Contains(body, "self") {
			results[i]["leader"] = json.RawMessage(body)
		} else {
			results[i]["error"] = body
		}
	}
	if err := json.NewEncoder(w).Encode(map[string]any{"results": results}); err != nil {
		f.t.Error(err)
	}
}

// requests returns the numbers of sessions in the requests for renewals.
func (f *fakeAgent) requests() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.batches)
}
