package grants_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func forLease(requested election.Tick, r grants.Request) grants.Request {
	r.Lease = requested
	return r
}

func TestGrantLastsForRequestedOrConfiguredLease(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(10, forLease(40, claim(a, 5)), grants.Granted)
	m.SetLease(60)
	m.wantAnswer(49, claim(b, 6), grants.Deferred)
	m.wantAnswer(50, claim(b, 6), grants.Granted)
	m.wantAnswer(109, claim(c, 7), grants.Deferred)
	m.wantAnswer(110, claim(c, 7), grants.Granted)
}

// TestShorterLeaseDoesntShortenPromise: the holder may still rely on the grant for the longer lease.
func TestShorterLeaseDoesntShortenPromise(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	m.wantAnswer(10, forLease(40, renewal(a, 5)), grants.Granted)
	m.wantAnswer(lease-1, claim(b, 6), grants.Deferred)
	m.wantAnswer(lease, claim(b, 6), grants.Granted)
}

func TestLongerLeaseProlongsPromise(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, forLease(40, claim(a, 5)), grants.Granted)
	m.wantAnswer(10, renewal(a, 5), grants.Granted)
	m.wantAnswer(10+lease-1, claim(b, 6), grants.Deferred)
	m.wantAnswer(10+lease, claim(b, 6), grants.Granted)
}

func TestDeferredRequestKeepsItsLease(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	m.wantAnswer(10, forLease(40, claim(b, 6)), grants.Deferred)
	must.Equalf(t, m.Pending().Lease, 40, "deferred request for a lease")
	m.wantAnswer(lease, m.Pending(), grants.Granted)
	m.wantAnswer(lease+39, claim(c, 7), grants.Deferred)
	m.wantAnswer(lease+40, claim(c, 7), grants.Granted)
}

// TestHolderCountsLeaseOfEachGrant compares the holder's end of a grant with the member's, for every lease.
func TestHolderCountsLeaseOfEachGrant(t *testing.T) {
	for requested := election.Tick(1); requested <= lease; requested++ {
		var s grants.Support
		s.Reset(roster(t, 1, 1), lease)
		s.Add(1, 10, requested)
		wantUntil(t, &s, 10+requested-grants.Margin(requested))
	}
}

func TestEarlierGrantForLongerLeaseStillCounts(t *testing.T) {
	var s grants.Support
	s.Reset(roster(t, 1, 1), lease)
	s.Add(1, 10, 0)
	s.Add(1, 20, 40)
	wantUntil(t, &s, 10+grantDuration)
	s.Add(1, 100, 40)
	wantUntil(t, &s, 100+40-grants.Margin(40))
}
