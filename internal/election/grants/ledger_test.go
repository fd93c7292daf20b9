package grants_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

const lease election.Tick = 100

var (
	a  = grants.Holder{ID: 1, Life: 1}
	a2 = grants.Holder{ID: 1, Life: 2}
	b  = grants.Holder{ID: 2, Life: 1}
	c  = grants.Holder{ID: 3, Life: 1}
)

// member is a ledger at work: the list that its member has adopted, and now.
type member struct {
	grants.Ledger
	t       *testing.T
	version uint32
	now     election.Tick
}

// seasoned is a member that has been there for ever; forgetful one that has just
// lost its memory, when its clock read 50.
func seasoned(t *testing.T) *member {
	return &member{t: t, version: 1, Ledger: grants.NewLedger(lease, election.TermClock{}, 0)}
}

func forgetful(t *testing.T) *member {
	clock := election.TermClock{AtBoot: 50, TicksPerTerm: 1000}
	return &member{t: t, version: 1, Ledger: grants.NewLedgerWithoutMemory(lease, 0, clock, 0)}
}

// claim and renewal are requests under list 1.
func claim(h grants.Holder, term election.Term) grants.Request {
	return grants.Request{Holder: h, Term: term, Version: 1}
}

func renewal(h grants.Holder, term election.Term) grants.Request {
	return grants.Request{Holder: h, Term: term, Version: 1, Held: true}
}

func under(version uint32, r grants.Request) grants.Request {
	r.Version = version
	return r
}

// asks lets a request arrive at a moment, and checks the answer.
func (m *member) asks(at election.Tick, r grants.Request, want grants.Answer) {
	m.t.Helper()
	m.now = at
	if got := m.Handle(r, m.version, at); got != want {
		m.t.Errorf("at %d, %+v: answer %d, want %d", at, r, got, want)
	}
}

func (m *member) adopts(at election.Tick, version uint32) {
	m.version = version
	m.Adopt(version)
	m.now = at
}

// says checks which list the member says that it has adopted.
func (m *member) says(at election.Tick, want uint32) {
	m.t.Helper()
	if got := m.ReportedVersion(m.version, at); got != want {
		m.t.Errorf("at %d it says that it has adopted list %d, want %d", at, got, want)
	}
}

func (m *member) bars(want election.Term) {
	m.t.Helper()
	if got := m.HighestGranted(); got != want {
		m.t.Errorf("the bar is %d, want %d", got, want)
	}
}

func TestAGrantShutsOthersOutForALeaseFromTheLatestRenewal(t *testing.T) {
	m := seasoned(t)
	m.asks(0, claim(a, 5), grants.Granted)
	m.asks(1, claim(b, 6), grants.Deferred)
	m.asks(60, renewal(a, 5), grants.Granted)
	m.asks(60+lease-1, claim(b, 6), grants.Deferred)
	if m.Holder(60+lease-1) != a || m.Holder(60+lease) != (grants.Holder{}) {
		t.Error("the grant doesn't last for a lease")
	}
	m.asks(60+lease, claim(b, 6), grants.Granted)
}

func TestTheNextLifeOfTheHolderIsSomeoneElse(t *testing.T) {
	m := seasoned(t)
	m.asks(0, claim(a, 5), grants.Granted)
	m.asks(1, claim(a2, 6), grants.Deferred)
	m.asks(1, claim(a2, 5), grants.TermTooLow)
	m.asks(lease, claim(a2, 5), grants.TermTooLow)
}

func TestAnAcquisitionNeedsATermAboveAllThatWereGranted(t *testing.T) {
	m := seasoned(t)
	m.asks(0, claim(a, 5), grants.Granted)
	m.asks(2*lease, claim(b, 5), grants.TermTooLow)
	m.asks(2*lease, claim(b, 4), grants.TermTooLow)
	m.asks(2*lease, claim(a, 5), grants.Granted) // it is the same acquisition
	m.asks(4*lease, claim(b, 6), grants.Granted)
	m.asks(6*lease, claim(a, 5), grants.TermTooLow)
	m.bars(6)
}

func TestARenewalNeedsNoHigherTermOnceTheOthersGrantHasRunOut(t *testing.T) {
	m := seasoned(t)
	m.asks(0, claim(b, 7), grants.Granted)
	m.asks(1, renewal(a, 5), grants.TermTooLow)
	m.asks(lease, renewal(a, 5), grants.Granted)
	m.bars(7)
	m.asks(lease+1, claim(c, 6), grants.TermTooLow)
	m.asks(lease+1, claim(c, 8), grants.Deferred)
}

func TestALateBeatOfTheSameHolderDoesntLowerItsGrant(t *testing.T) {
	m := seasoned(t)
	m.asks(0, claim(a, 5), grants.Granted)
	m.asks(10, claim(a, 8), grants.Granted)
	for _, late := range []grants.Request{claim(a, 5), renewal(a, 5), renewal(a, 7)} {
		m.asks(20, late, grants.TermTooLow)
	}
	m.Release(a, 7, 30) // it resigned from what it held before
	m.asks(40, claim(b, 9), grants.Deferred)
}

func TestAGrantIsntReleasedByTheResignationOfAnOlderTermOrAnotherLife(t *testing.T) {
	m := seasoned(t)
	m.asks(0, claim(a, 5), grants.Granted)
	m.Release(a, 4, 1)
	m.Release(a2, 9, 1)
	m.Release(b, 9, 1)
	m.ProcessEnded(a2, 1)
	m.ProcessEnded(b, 1)
	m.asks(1, claim(b, 6), grants.Deferred)
	m.Release(a, 5, 2)
	m.asks(2, claim(b, 6), grants.Granted)
	m.ProcessEnded(b, 3)
	m.asks(3, claim(c, 7), grants.Granted)
}

func TestAResignationDoesntProlongAGrantThatHasRunOut(t *testing.T) {
	m := seasoned(t)
	m.asks(0, claim(a, 5), grants.Granted)
	m.adopts(1, 2)
	m.Release(a, 5, 3*lease)
	m.says(2*lease, 2)
	if m.Holder(2*lease) != (grants.Holder{}) {
		t.Error("the grant is in force again")
	}
}

func TestAMemberThatLostItsMemoryGrantsNothingForALease(t *testing.T) {
	m := forgetful(t)
	m.asks(0, renewal(a, 40), grants.Deferred)
	m.asks(lease-1, renewal(a, 40), grants.Deferred)
	if !m.WaitingAfterRestart(lease-1) || m.WaitingAfterRestart(lease) {
		t.Error("it doesn't wait for a lease")
	}
	m.asks(lease, renewal(a, 40), grants.Granted)
}

func TestAMemberThatLostItsMemoryWaitsForTheLongestLeaseThatItMayHaveGrantedFor(t *testing.T) {
	for longest, quiet := range map[election.Tick]election.Tick{lease / 2: lease, 3 * lease: 3 * lease} {
		m := forgetful(t)
		m.Ledger = grants.NewLedgerWithoutMemory(lease, longest, election.TermClock{}, 0)
		m.asks(quiet-1, renewal(a, 40), grants.Deferred)
		if old := m.ReportedVersion(2, quiet-1); old != 1 {
			t.Errorf("it has adopted version %d while grants of %d ticks are in force", old, longest)
		}
		m.asks(quiet, renewal(a, 40), grants.Granted)
	}
}

func TestAMemberThatLostItsMemoryGrantsNoTermThatItMayHaveGrantedBefore(t *testing.T) {
	m := forgetful(t)
	m.bars(50)
	m.asks(2*lease, claim(a, 50), grants.TermTooLow)
	m.asks(2*lease, claim(a, 51), grants.Deferred) // nor one that its clock doesn't read yet
	m.asks(999, claim(a, 51), grants.Deferred)
	m.asks(1000, claim(a, 51), grants.Granted)
	if got := m.HighestGrantedExcept(a, 51); got != 50 {
		t.Errorf("the bar for the first that it granted is %d, want 50", got)
	}
	m.asks(1001, renewal(a, 52), grants.Deferred)
}

func TestARequestThatIsKeptIsDueWhenItCanBeGranted(t *testing.T) {
	m := seasoned(t)
	if m.PendingDue() != election.Never {
		t.Errorf("nothing waits, and is due at %d", m.PendingDue())
	}
	m.asks(0, claim(a, 5), grants.Granted)
	r := claim(b, 6)
	r.Sent = 777
	m.asks(10, r, grants.Deferred)
	if m.PendingDue() != lease || m.Pending() != r {
		t.Errorf("%+v is due at %d, want %+v at %d", m.Pending(), m.PendingDue(), r, lease)
	}
	m.asks(50, renewal(a, 5), grants.Granted)
	if m.PendingDue() != 50+lease {
		t.Errorf("after the renewal it is due at %d, want %d", m.PendingDue(), 50+lease)
	}
	m.asks(m.PendingDue(), m.Pending(), grants.Granted)
	if m.PendingDue() != election.Never {
		t.Errorf("what was granted still waits, till %d", m.PendingDue())
	}

	f := forgetful(t)
	f.asks(0, renewal(a, 40), grants.Deferred)
	if f.PendingDue() != lease {
		t.Errorf("after a restart it is due at %d, want %d", f.PendingDue(), lease)
	}
	f.asks(1, claim(a, 53), grants.Deferred)
	if f.PendingDue() != 3000 {
		t.Errorf("a term that the clock reads later is due at %d, want 3000", f.PendingDue())
	}
}

func TestOfTwoRequestsTheOneOfTheHigherTermIsKept(t *testing.T) {
	m := seasoned(t)
	m.asks(0, claim(a, 5), grants.Granted)
	m.asks(1, claim(b, 7), grants.Deferred)
	m.asks(2, claim(c, 6), grants.Deferred)
	if m.Pending().Holder != b {
		t.Errorf("%+v is kept", m.Pending())
	}
	m.asks(3, claim(c, 8), grants.Deferred)
	if m.Pending().Holder != c {
		t.Errorf("%+v is kept", m.Pending())
	}
	m.asks(4, renewal(a, 5), grants.Granted)
	if m.Pending().Holder != c {
		t.Error("a renewal of a lower term ends the wait")
	}
}

func TestARequestIsKeptNoLongerThanItsSenderStandsByIt(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*member)
		kept bool
	}{
		{"its sender resigned", func(m *member) { m.Release(b, 7, 2) }, false},
		{"its sender resigned from an older claim", func(m *member) { m.Release(b, 6, 2) }, true},
		{"an older life resigned", func(m *member) { m.Release(grants.Holder{ID: 2}, 7, 2) }, true},
		{"its sender ended", func(m *member) { m.ProcessEnded(b, 2) }, false},
		{"an older life ended", func(m *member) { m.ProcessEnded(grants.Holder{ID: 2}, 2) }, true},
		{"the member went over to another list", func(m *member) { m.adopts(2, 2) }, false},
		{"the member has that list already", func(m *member) { m.adopts(2, 1) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := seasoned(t)
			m.asks(0, claim(a, 5), grants.Granted)
			m.asks(1, claim(b, 7), grants.Deferred)
			test.end(m)
			if kept := m.Pending().Term != 0; kept != test.kept {
				t.Errorf("it is kept: %t, want %t", kept, test.kept)
			}
		})
	}
}

func TestTheBarForAHolderLeavesItsOwnGrantOut(t *testing.T) {
	m := seasoned(t)
	m.asks(0, claim(b, 3), grants.Granted)
	m.asks(lease, claim(a, 5), grants.Granted)
	m.asks(lease+1, renewal(a, 5), grants.Granted)
	for _, test := range []struct {
		h    grants.Holder
		term election.Term
		want election.Term
	}{{a, 5, 3}, {a, 6, 5}, {a2, 5, 5}, {b, 5, 5}} {
		if got := m.HighestGrantedExcept(test.h, test.term); got != test.want {
			t.Errorf("the bar for %v in term %d is %d, want %d", test.h, test.term, got, test.want)
		}
	}
	m.asks(3*lease, claim(c, 7), grants.Granted)
	m.asks(5*lease, renewal(a, 5), grants.Granted)
	if got := m.HighestGrantedExcept(a, 5); got != 7 {
		t.Errorf("the bar for a holder after another's grant is %d, want 7", got)
	}
}
