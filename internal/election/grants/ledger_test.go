package grants_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

const lease election.Tick = 100

var (
	a  = grants.Holder{ID: 1, Life: 1}
	a2 = grants.Holder{ID: 1, Life: 2}
	b  = grants.Holder{ID: 2, Life: 1}
	c  = grants.Holder{ID: 3, Life: 1}
)

// member is a ledger with the list that its member has adopted, and the present moment.
type member struct {
	grants.Ledger
	t       *testing.T
	version uint32
	now     election.Tick
}

// newMember returns a member that remembers all its grants.
func newMember(t *testing.T) *member {
	m := &member{t: t, version: 1, Ledger: grants.NewLedger(lease, 0)}
	m.Reserve(99)
	return m
}

// forgotten is the highest term that a member without memory may have granted, and reserved the one that it may grant.
const forgotten, reserved election.Term = 50, 60

// newMemberWithoutMemory returns a member that has just lost its memory.
func newMemberWithoutMemory(t *testing.T) *member {
	m := &member{t: t, version: 1, Ledger: grants.NewLedgerWithoutMemory(lease, 0, forgotten, 0, 0)}
	m.Reserve(reserved)
	return m
}

// claim and renewal are requests under list 1.
func claim(h grants.Holder, term election.Term) grants.Request {
	return grants.Request{Holder: h, Term: term, Version: 1}
}

func renewal(h grants.Holder, term election.Term) grants.Request {
	return grants.Request{Holder: h, Term: term, Version: 1, Held: true}
}

func withVersion(version uint32, r grants.Request) grants.Request {
	r.Version = version
	return r
}

// wantAnswer makes a request at a moment, and checks the answer.
func (m *member) wantAnswer(at election.Tick, r grants.Request, want grants.Answer) {
	m.t.Helper()
	m.now = at
	expect.Equalf(m.t, m.Handle(r, m.version, at), want, "at %d, %+v: answer", at, r)
}

func (m *member) adopt(at election.Tick, version uint32) {
	m.version = version
	m.Adopt(version)
	m.now = at
}

// wantReported checks which list the member reports as adopted.
func (m *member) wantReported(at election.Tick, want uint32) {
	m.t.Helper()
	expect.Equalf(m.t, m.ReportedVersion(m.version, at), want, "at %d: list reported as adopted", at)
}

func (m *member) wantHighestGranted(want election.Term) {
	m.t.Helper()
	expect.Equalf(m.t, m.HighestGranted(), want, "highest granted term")
}

func TestGrantExcludesOthersForLease(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	m.wantAnswer(1, claim(b, 6), grants.Deferred)
	m.wantAnswer(60, renewal(a, 5), grants.Granted)
	m.wantAnswer(60+lease-1, claim(b, 6), grants.Deferred)
	if m.Holder(60+lease-1) != a || m.Holder(60+lease) != (grants.Holder{}) {
		t.Error("got a grant that doesn't last for a lease, want one that does")
	}
	if last := 60 + lease - 1; !m.HasGranted(a.ID, 5, last) || m.HasGranted(a.ID, 6, last) ||
		m.HasGranted(b.ID, 5, last) || m.HasGranted(a.ID, 5, last+1) {
		t.Error("got another process, term or moment, want only those of the grant")
	}
	m.wantAnswer(60+lease, claim(b, 6), grants.Granted)
}

func TestNextIncarnationIsAnotherHolder(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	m.wantAnswer(1, claim(a2, 6), grants.Deferred)
	m.wantAnswer(1, claim(a2, 5), grants.TermTooLow)
	m.wantAnswer(lease, claim(a2, 5), grants.TermTooLow)
}

func TestAcquisitionNeedsHigherTerm(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	m.wantAnswer(2*lease, claim(b, 5), grants.TermTooLow)
	m.wantAnswer(2*lease, claim(b, 4), grants.TermTooLow)
	m.wantAnswer(2*lease, claim(a, 5), grants.Granted) // it is the same acquisition
	m.wantAnswer(4*lease, claim(b, 6), grants.Granted)
	m.wantAnswer(6*lease, claim(a, 5), grants.TermTooLow)
	m.wantHighestGranted(6)
}

func TestRenewalNeedsNoHigherTermAfterOtherGrantExpired(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(b, 7), grants.Granted)
	m.wantAnswer(1, renewal(a, 5), grants.TermTooLow)
	m.wantAnswer(lease, renewal(a, 5), grants.Granted)
	m.wantHighestGranted(7)
	m.wantAnswer(lease+1, claim(c, 6), grants.TermTooLow)
	m.wantAnswer(lease+1, claim(c, 8), grants.Deferred)
}

func TestLateRequestDoesntLowerGrant(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	m.wantAnswer(10, claim(a, 8), grants.Granted)
	for _, late := range []grants.Request{claim(a, 5), renewal(a, 5), renewal(a, 7)} {
		m.wantAnswer(20, late, grants.TermTooLow)
	}
	m.Release(a, 7, 30) // it resigned from an earlier tenure
	m.wantAnswer(40, claim(b, 9), grants.Deferred)
}

func TestResignationOfOlderTermOrIncarnationReleasesNothing(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	m.Release(a, 4, 1)
	m.Release(a2, 9, 1)
	m.Release(b, 9, 1)
	m.ProcessEnded(a2, 1)
	m.ProcessEnded(b, 1)
	m.wantAnswer(1, claim(b, 6), grants.Deferred)
	m.Release(a, 5, 2)
	m.wantAnswer(2, claim(b, 6), grants.Granted)
	m.ProcessEnded(b, 3)
	m.wantAnswer(3, claim(c, 7), grants.Granted)
}

func TestResignationDoesntExtendExpiredGrant(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	m.adopt(1, 2)
	m.Release(a, 5, 3*lease)
	m.wantReported(2*lease, 2)
	expect.Equalf(t, m.Holder(2*lease), grants.Holder{}, "grant after the lease")
}

func TestMemberWithoutMemoryWaitsForLease(t *testing.T) {
	m := newMemberWithoutMemory(t)
	m.wantAnswer(0, renewal(a, 40), grants.Deferred)
	m.wantAnswer(lease-1, renewal(a, 40), grants.Deferred)
	if !m.WaitingAfterRestart(lease-1) || m.WaitingAfterRestart(lease) {
		t.Error("got a wait that isn't a lease, want a lease")
	}
	m.wantAnswer(lease, renewal(a, 40), grants.Granted)
}

func TestMemberWithoutMemoryWaitsForLongestLease(t *testing.T) {
	for longest, quiet := range map[election.Tick]election.Tick{lease / 2: lease, 3 * lease: 3 * lease} {
		m := newMemberWithoutMemory(t)
		m.Ledger = grants.NewLedgerWithoutMemory(lease, longest, forgotten, 0, 0)
		m.wantAnswer(quiet-1, renewal(a, 40), grants.Deferred)
		expect.Equalf(t, m.ReportedVersion(2, quiet-1), 0,
			"version reported while grants of %d ticks are in force", longest)
		m.wantAnswer(quiet, renewal(a, 40), grants.Granted)
	}
}

func TestMemberWithoutMemoryWaitsFromTheEndOfEarlierIncarnations(t *testing.T) {
	const start = 4 * lease
	for ended, quiet := range map[election.Tick]election.Tick{
		1: 2*lease - 1, lease: lease, 2*lease - 1: 1, 2 * lease: 0, 3 * lease: 0,
	} {
		m := newMemberWithoutMemory(t)
		m.Ledger = grants.NewLedgerWithoutMemory(lease, 2*lease, forgotten, start-ended, start)
		if quiet > 0 {
			m.wantAnswer(start+quiet-1, renewal(a, 40), grants.Deferred)
		}
		m.wantAnswer(start+quiet, renewal(a, 40), grants.Granted)
	}
}

func TestMemberWithoutMemoryGrantsNewTermsOnly(t *testing.T) {
	m := newMemberWithoutMemory(t)
	m.wantHighestGranted(forgotten)
	m.wantAnswer(2*lease, claim(a, forgotten), grants.TermTooLow)
	m.wantAnswer(2*lease, claim(a, forgotten+1), grants.Granted)
	expect.Equalf(t, m.HighestGrantedExcept(a, forgotten+1), forgotten, "highest granted term except the first")
}

func TestPendingRequestIsDueWhenGrantable(t *testing.T) {
	m := newMember(t)
	expect.Equalf(t, m.PendingDue(), election.Never, "due without a pending request")
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	r := claim(b, 6)
	r.Sent = 777
	m.wantAnswer(10, r, grants.Deferred)
	if m.PendingDue() != lease || m.Pending() != r {
		t.Errorf("got %+v due at %d, want %+v at %d", m.Pending(), m.PendingDue(), r, lease)
	}
	m.wantAnswer(50, renewal(a, 5), grants.Granted)
	expect.Equalf(t, m.PendingDue(), 50+lease, "after the renewal: due")
	m.wantAnswer(m.PendingDue(), m.Pending(), grants.Granted)
	expect.Equalf(t, m.PendingDue(), election.Never, "due after the grant")

	f := newMemberWithoutMemory(t)
	f.wantAnswer(0, renewal(a, 40), grants.Deferred)
	expect.Equalf(t, f.PendingDue(), lease, "after a restart: due")
}

func TestPendingRequestIsThatOfHighestTerm(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	m.wantAnswer(1, claim(b, 7), grants.Deferred)
	m.wantAnswer(2, claim(c, 6), grants.Deferred)
	expect.Equalf(t, m.Pending().Holder, b, "holder of the pending request")
	m.wantAnswer(3, claim(c, 8), grants.Deferred)
	expect.Equalf(t, m.Pending().Holder, c, "holder of the pending request")
	m.wantAnswer(4, renewal(a, 5), grants.Granted)
	expect.Equalf(t, m.Pending().Holder, c, "holder of the pending request")
}

func TestPendingRequestIsDroppedWhenObsolete(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*member)
		kept bool
	}{
		{"its sender resigned", func(m *member) { m.Release(b, 7, 2) }, false},
		{"its sender resigned from an earlier claim", func(m *member) { m.Release(b, 6, 2) }, true},
		{"an earlier incarnation resigned", func(m *member) { m.Release(grants.Holder{ID: 2}, 7, 2) }, true},
		{"its sender ended", func(m *member) { m.ProcessEnded(b, 2) }, false},
		{"an earlier incarnation ended", func(m *member) { m.ProcessEnded(grants.Holder{ID: 2}, 2) }, true},
		{"the member adopted another list", func(m *member) { m.adopt(2, 2) }, false},
		{"the member had adopted that list already", func(m *member) { m.adopt(2, 1) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMember(t)
			m.wantAnswer(0, claim(a, 5), grants.Granted)
			m.wantAnswer(1, claim(b, 7), grants.Deferred)
			test.end(m)
			expect.Equalf(t, m.Pending().Term != 0, test.kept, "pending")
		})
	}
}

func TestHighestGrantedExceptOmitsOwnGrant(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(b, 3), grants.Granted)
	m.wantAnswer(lease, claim(a, 5), grants.Granted)
	m.wantAnswer(lease+1, renewal(a, 5), grants.Granted)
	for _, test := range []struct {
		h    grants.Holder
		term election.Term
		want election.Term
	}{{a, 5, 3}, {a, 6, 5}, {a2, 5, 5}, {b, 5, 5}} {
		expect.Equalf(t, m.HighestGrantedExcept(test.h, test.term), test.want,
			"highest granted except %v in term %d", test.h, test.term)
	}
	m.wantAnswer(3*lease, claim(c, 7), grants.Granted)
	m.wantAnswer(5*lease, renewal(a, 7), grants.Granted)
	expect.Equalf(t, m.HighestGrantedExcept(a, 7), 7, "highest granted except a holder, after another grant of its term")
}

// sizes are sizes of member lists, up to the largest one.
var sizes = []int{3, 5, 100, 1000}

func idsTo(size int) []election.ID {
	ids := make([]election.ID, size)
	for i := range ids {
		ids[i] = election.ID(i + 1)
	}
	return ids
}

// TestUntilIsThatOfTheMajority compares Until after each of many grants with a calculation from all of them.
func TestUntilIsThatOfTheMajority(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range sizes {
		list := roster(t, 1, idsTo(size)...)
		var s grants.Support
		s.Reset(list, lease)
		sent := make([]election.Tick, size)
		for now := election.Tick(1); int(now) < 3*size+100; now++ {
			id, at := 1+random.IntN(size), max(1, now-election.Tick(random.IntN(size)))
			s.Add(election.ID(id), at, 0)
			sent[id-1] = max(sent[id-1], at)
			byAge := slices.Sorted(slices.Values(sent))
			want := none
			if oldest := byAge[size-list.Majority()]; oldest > 0 {
				want = oldest + grantDuration
			}
			if wantUntil(t, &s, want); t.Failed() {
				t.Fatalf("%d members, after %d grants", size, now)
			}
		}
	}
}

// bounds are what members report, by ID.
type bounds map[election.ID]election.Term

func (b bounds) of(id election.ID) (election.Term, bool) {
	bound, ok := b[id]
	return bound, ok
}

func TestLowestBoundOfManyMembers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range sizes {
		reported := bounds{}
		for i, term := range random.Perm(size) {
			reported[election.ID(i+1)] = election.Term(term)
		}
		for count := 1; count <= size; count += 1 + size/10 {
			got, ok := grants.LowestBound(roster(t, 1, idsTo(size)...), count, reported.of)
			if want := election.Term(count - 1); !ok || got != want {
				t.Errorf("%d of %d members: got bound %d (%t), want %d", count, size, got, ok, want)
			}
		}
		delete(reported, 1)
		_, ok := grants.LowestBound(roster(t, 1, idsTo(size)...), size, reported.of)
		expect.Equalf(t, ok, false, "bound of %d members, of which one hasn't reported", size)
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
	m.wantAnswer(lease+1, claim(c, 7), grants.Granted)
	m.Abandon(c, 7, lease+1)
	m.wantHighestGranted(6)
}

// A member grants no acquisition above what is on its disk. A renewal continues a tenure that others have granted.
func TestAcquisitionNeedsReservation(t *testing.T) {
	m := newMemberWithoutMemory(t)
	m.wantAnswer(3*lease, renewal(c, reserved+5), grants.Granted)
	m.wantAnswer(5*lease, claim(a, reserved+1), grants.Unreserved)
	m.Reserve(reserved + 1)
	m.wantAnswer(5*lease, claim(a, reserved+1), grants.Granted)
	m.wantAnswer(7*lease, claim(b, reserved+2), grants.Unreserved)
}

// A false renewal in a high term keeps the member from granting that term and lower ones no longer than its lease.
func TestRenewalDoesntUseUpTerms(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	m.wantAnswer(lease, renewal(b, 70), grants.Granted)
	m.wantHighestGranted(5)
	m.wantAnswer(2*lease, claim(c, 5), grants.TermTooLow)
	m.wantAnswer(2*lease, claim(c, 6), grants.Granted)
}

func TestWantedIsABlockAboveTermsInUse(t *testing.T) {
	first := election.FirstTerm(1)
	full := first + election.Block // what a list comes with
	for _, test := range []struct {
		name string
		do   func(*member)
		used election.Term
		want election.Term
	}{
		{"a list was adopted", func(*member) {}, 0, full},
		{
			"half of the block is used", func(m *member) { m.wantAnswer(0, claim(a, first+32), grants.Granted) }, 0,
			first + 32 + election.Block,
		},
		{"less than half", func(m *member) { m.wantAnswer(0, claim(a, first+31), grants.Granted) }, 0, full},
		{"requests wait", func(m *member) {
			m.wantAnswer(0, claim(a, first+900), grants.Unreserved)
			m.Reserve(m.Wanted(0))
			m.wantAnswer(lease-1, claim(a, first+901), grants.Unreserved)
		}, 0, full + election.Block},
		{"requests wait for a lease", func(m *member) {
			m.wantAnswer(0, claim(a, first+900), grants.Unreserved)
			m.Reserve(m.Wanted(0))
			m.wantAnswer(lease, claim(a, first+901), grants.Unreserved)
		}, 0, full + 2*election.Block},
		{"a renewal", func(m *member) { m.wantAnswer(0, renewal(a, first+900), grants.Granted) }, 0, full},
		{"a renewal waits", func(m *member) {
			m.wantAnswer(0, claim(b, first+1), grants.Granted)
			m.wantAnswer(0, renewal(a, first+900), grants.Deferred)
		}, 0, full},
		{"others use a term", func(*member) {}, first + 900, first + 900 + election.Block},
		{"a request under a newer list", func(m *member) {
			m.wantAnswer(0, withVersion(2, claim(a, election.FirstTerm(2)+9)), grants.Deferred)
		}, 0, election.FirstTerm(2) + 9 + election.Block},
		{"the list has few terms left", func(*member) {}, election.LastTerm(1) - 3, election.LastTerm(1)},
	} {
		m := &member{t: t, version: 1, Ledger: grants.NewLedger(lease, 0)}
		m.adopt(0, 1)
		test.do(m)
		expect.Equalf(t, m.Wanted(test.used), test.want, "%s: wanted reservation", test.name)
	}
}

// TestLossOfMemoryUsesNoTerms until others have used as many.
func TestLossOfMemoryUsesNoTerms(t *testing.T) {
	m := grants.NewLedgerWithoutMemory(lease, 0, reserved, 0, 0)
	m.Reserve(reserved)
	expect.Equalf(t, m.Wanted(0), reserved, "wanted reservation")
	expect.Equalf(t, m.Wanted(reserved), reserved+election.Block, "wanted reservation while others have used these terms")
}

// A request under a list that the member doesn't have yet waits for the reservation only.
func TestRequestUnderNewerListIsGrantedWhenReserved(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, withVersion(2, claim(a, election.FirstTerm(2)+1)), grants.Deferred)
	m.Reserve(m.Wanted(0))
	m.wantAnswer(1, m.Pending(), grants.Granted)
	m.wantAnswer(3*lease, claim(b, 7), grants.TermTooLow)
}
