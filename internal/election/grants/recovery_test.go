package grants_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// bounds are what members report, by ID.
type bounds map[election.ID]election.Term

func (b bounds) of(id election.ID) (election.Term, bool) {
	bound, ok := b[id]
	return bound, ok
}

// Each majority with the member includes one of those whose bounds count.
func TestBoundOfOthersCoversEveryMajority(t *testing.T) {
	for size := 1; size <= 6; size++ {
		ids := []election.ID{1, 2, 3, 4, 5, 6}[:size]
		list := roster(t, 1, ids...)
		for reporting := range 1 << size {
			for granting := range 1 << size {
				reported, granted := bounds{}, 0
				for i, id := range ids {
					has := granting&(1<<i) != 0
					if has {
						granted++
					}
					if reporting&(1<<i) == 0 {
						continue
					}
					reported[id] = election.Term(id)
					if has {
						reported[id] = 100 // the term of a tenure that it granted
					}
				}
				bound, ok := grants.BoundOfOthers(list, 1, reported.of)
				if ok && granting&1 != 0 && granted >= list.Majority() && bound < 100 {
					t.Fatalf("%d members, granted by %b, reported by %b: got bound %d, want 100", size, granting, reporting, bound)
				}
			}
		}
	}
}

func TestBoundOfOthersNeedsAsFewAsPossible(t *testing.T) {
	for size, need := range map[int]int{2: 1, 3: 2, 4: 2, 5: 3, 6: 3} {
		list := roster(t, 1, []election.ID{1, 2, 3, 4, 5, 6}[:size]...)
		reported := bounds{1: 0}
		for id := election.ID(2); int(id) < 2+need; id++ {
			if _, ok := grants.BoundOfOthers(list, 1, reported.of); ok {
				t.Errorf("%d members, %d others reported: got a bound, want none", size, id-2)
			}
			reported[id] = election.Term(10 * id)
		}
		if bound, ok := grants.BoundOfOthers(list, 1, reported.of); !ok || bound != election.Term(10*(need+1)) {
			t.Errorf("%d members, %d others reported: got bound %d (%t), want the highest", size, need, bound, ok)
		}
	}
}

func TestRecoveredMemberGrantsLowerTerms(t *testing.T) {
	m := newMemberWithoutMemory(t)
	m.Recover(20, lease-1)
	m.wantHighestGranted(epoch50) // the leases of its earlier grants last until then
	m.wantAnswer(lease, claim(a, 30), grants.Deferred)
	m.Recover(epoch51, lease)
	m.wantHighestGranted(epoch50) // its clock hasn't reached epoch 51
	m.Recover(20, lease)
	m.wantHighestGranted(20)
	m.wantAnswer(m.PendingDue(), m.Pending(), grants.Granted)
	m.wantHighestGranted(30)
	m.Recover(10, lease+1)
	m.wantHighestGranted(30) // what it has granted itself counts
}

// The answers of the others take a moment. A refusal would tell the sender of a claim to use a higher term.
func TestClaimIsDeferredDuringRecovery(t *testing.T) {
	m := newMemberWithoutMemory(t)
	m.wantAnswer(0, claim(a, 30), grants.Deferred)
	m.wantAnswer(lease, claim(a, 30), grants.Deferred)
	due := m.RecoveryDue()
	if got := m.PendingDue(); got != due || due <= lease {
		t.Errorf("got the claim due at %d, want %d, after the end of the lease", got, due)
	}
	m.wantAnswer(due, claim(a, 30), grants.TermTooLow)
}

func TestCorrectedClockCountsForMemberWithoutMemory(t *testing.T) {
	for name, test := range map[string]struct {
		wall election.Epoch
		want election.Term
	}{"ahead": {80, election.Epoch(80).Last()}, "back": {30, election.Epoch(50).Last()}} {
		m := newMemberWithoutMemory(t)
		clock := election.TermClock{AtBoot: 50, TicksPerEpoch: 1000}
		m.SetClock(clock.Corrected(test.wall, 10))
		expect.Equalf(t, m.HighestGranted(), test.want, "clock set %s to %d: bound", name, test.wall)
	}
}

// A claim that was given up leaves no trace, because its term was never used.
func TestAbandonedClaimDoesntCountAsGranted(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	m.wantAnswer(lease, claim(b, 9), grants.Granted)
	m.Abandon(b, 8, lease) // an earlier claim
	m.wantHighestGranted(9)
	m.Abandon(b, 9, lease)
	m.wantHighestGranted(5)
	m.wantAnswer(lease, claim(c, 6), grants.Granted)
	m.wantAnswer(lease+1, renewal(c, 6), grants.Granted)
	m.Abandon(c, 6, lease+1) // it did hold the office
	m.wantHighestGranted(6)
}

// A term that the clock hasn't reached can't be granted for a while.
func TestPendingRequestAheadOfClockGivesWay(t *testing.T) {
	m := newMemberWithoutMemory(t)
	for _, second := range []grants.Request{claim(b, epoch51), claim(b, epoch53)} {
		m.DropPending()
		m.wantAnswer(1000, claim(a, election.Epoch(99).First()), grants.Deferred)
		m.wantAnswer(1000, renewal(c, 40), grants.Granted)
		m.wantAnswer(1000, second, grants.Deferred)
		if reached := second.Term == epoch51; (m.Pending() == second) != reached {
			t.Errorf("got pending %+v after %+v", m.Pending(), second)
		}
		m.ProcessEnded(c, 1000)
	}
}

func forLease(requested election.Tick, r grants.Request) grants.Request {
	r.Lease = requested
	return r
}

func TestGrantLastsForRequestedLease(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(10, forLease(40, claim(a, 5)), grants.Granted)
	m.wantAnswer(49, claim(b, 6), grants.Deferred)
	m.wantAnswer(50, claim(b, 6), grants.Granted)
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

// TestRestartedMemberWaitsForLongestLease: it doesn't know for which lease it granted.
func TestRestartedMemberWaitsForLongestLease(t *testing.T) {
	m := newMemberWithoutMemory(t)
	m.wantAnswer(lease-1, forLease(40, claim(a, 50)), grants.Deferred)
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
