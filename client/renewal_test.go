//go:build go1.25

package client

import (
	"net/http"
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
				return http.StatusServiceUnavailable, `{"group":"ledger","self":"a","coordinator":"a","leading":false,"term":7,"remainingMillis":400}`
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
					if stopping := name == "stop"; renewal.Stopping != stopping || renewal.Token != token(7) || renewal.Until <= renewal.Sent || renewal.Received < renewal.Sent ||
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
