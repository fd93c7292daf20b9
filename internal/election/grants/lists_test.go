package grants_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestMemberGrantsNothingUnderOlderList(t *testing.T) {
	m := newMember(t)
	m.wantAnswer(0, claim(a, 5), grants.Granted)
	m.adopt(1, 2)
	m.wantAnswer(2, renewal(a, 5), grants.NoVote)
	m.wantAnswer(2*lease, claim(b, 6), grants.NoVote)
	m.wantAnswer(2*lease, withVersion(3, claim(b, 6)), grants.Granted) // a request under a newer list may come first
}

// The list that a member reports as adopted, after different grants.
func TestMemberReportsAdoptionAfterOlderGrantsExpired(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(*member)
		// from is when it reports that it has adopted list 2.
		from election.Tick
	}{
		{"it granted nothing", func(m *member) { m.adopt(10, 2) }, 10},
		{"a grant under the old list", func(m *member) {
			m.wantAnswer(5, claim(a, 5), grants.Granted)
			m.adopt(10, 2)
		}, 5 + lease},
		{"a grant under the new list, which comes first", func(m *member) {
			m.wantAnswer(5, withVersion(2, claim(a, 5)), grants.Granted)
			m.adopt(10, 2)
		}, 10},
		{"a renewal under the new list", func(m *member) {
			m.wantAnswer(5, claim(a, 5), grants.Granted)
			m.wantAnswer(8, withVersion(2, renewal(a, 5)), grants.Granted)
			m.adopt(10, 2)
			m.wantAnswer(20, withVersion(2, renewal(a, 5)), grants.Granted)
		}, 5 + lease},
		{"a renewal under the new list after it was adopted", func(m *member) {
			m.wantAnswer(5, claim(a, 5), grants.Granted)
			m.adopt(10, 2)
			m.wantAnswer(20, withVersion(2, renewal(a, 5)), grants.Granted)
		}, 5 + lease},
		{"a late renewal under the old list", func(m *member) {
			m.wantAnswer(5, claim(a, 5), grants.Granted)
			m.wantAnswer(8, withVersion(2, renewal(a, 5)), grants.Granted)
			m.wantAnswer(9, renewal(a, 5), grants.Granted)
			m.adopt(10, 2)
		}, 9 + lease},
		{"another's under the old list, after one under the new list", func(m *member) {
			m.wantAnswer(0, withVersion(2, claim(a, 5)), grants.Granted)
			m.Release(a, 5, 5)
			m.wantAnswer(6, claim(b, 6), grants.Granted)
			m.adopt(10, 2)
		}, 6 + lease},
		{"the holder resigned", func(m *member) {
			m.wantAnswer(5, claim(a, 5), grants.Granted)
			m.adopt(10, 2)
			m.Release(a, 5, 20)
		}, 20},
		{"the holder is gone", func(m *member) {
			m.wantAnswer(5, claim(a, 5), grants.Granted)
			m.adopt(10, 2)
			m.ProcessEnded(a, 20)
		}, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMember(t)
			test.do(m)
			if test.from > m.now {
				m.wantReported(test.from-1, 0)
			}
			m.wantReported(test.from, 2)
		})
	}
}

func TestMemberWithoutMemoryReportsAdoptionAfterLease(t *testing.T) {
	for _, adopt := range []election.Tick{0, 30} {
		m := newMemberWithoutMemory(t)
		if adopt > 0 {
			m.wantReported(0, 0)
		}
		m.adopt(adopt, 2)
		m.wantReported(lease-1, 0)
		m.wantReported(lease, 2)
	}
}

// The holder's side.

func roster(t *testing.T, version uint32, ids ...election.ID) *election.Roster {
	t.Helper()
	ring := make([]election.Member, len(ids))
	for i, id := range ids {
		ring[i] = election.Member{ID: id, Priority: election.Priority(id)}
	}
	r, err := election.NewRoster(version, ring)
	must.Succeed(t, err)
	return r
}

// grantDuration is how long a grant counts for its holder.
var grantDuration = lease - grants.Margin(lease)

const none election.Tick = 0

// wantUntil checks when the grants cease to suffice; none means that they don't suffice.
func wantUntil(t *testing.T, s *grants.Support, want election.Tick) {
	t.Helper()
	if got := s.Until(); got != want && (want != none || got > 0) {
		t.Errorf("got grants until %d, want %d", got, want)
	}
}

func TestHolderStopsBeforeGrantsExpire(t *testing.T) {
	// The holder stops first even if its clock is slower by a sixteenth, or if it
	// is slow by a thirty-second and the members' clocks are as much too fast.
	for _, l := range []election.Tick{10, 100, 500, 30_000} {
		holder := l - grants.Margin(l)
		if holder*17 >= l*16 {
			t.Errorf("lease of %d: got %d on a slow clock, want less", l, holder)
		}
		if holder*33 >= l*31 {
			t.Errorf("lease of %d: got %d on a slow clock while the members' are fast, want less", l, holder)
		}
	}
}

func TestTenureLastsUntilMajorityExpires(t *testing.T) {
	var s grants.Support
	s.Reset(roster(t, 1, 1, 2, 3, 4, 5), lease)
	wantUntil(t, &s, none)
	s.Add(1, 10, 0)
	s.Add(2, 30, 0)
	s.Add(2, 35, 0) // it counts once
	wantUntil(t, &s, none)
	s.Add(3, 20, 0)
	wantUntil(t, &s, 10+grantDuration)
	s.Add(4, 40, 0)
	wantUntil(t, &s, 20+grantDuration)
	s.Add(4, 5, 0) // late
	wantUntil(t, &s, 20+grantDuration)
	s.Add(9, 50, 0) // not a member
	wantUntil(t, &s, 20+grantDuration)
	s.Clear()
	wantUntil(t, &s, none)
	s.Add(1, 50, 0)
	s.Add(2, 50, 0)
	wantUntil(t, &s, none)
}

func TestTwoOfFourAreNoMajority(t *testing.T) {
	var s grants.Support
	s.Reset(roster(t, 1, 1, 2, 3, 4), lease)
	s.Add(1, 10, 0)
	s.Add(2, 10, 0)
	wantUntil(t, &s, none)
	s.Add(4, 10, 0)
	wantUntil(t, &s, 10+grantDuration)
}

// newSupport returns the support of a process that has switched from the list 1, 2, 3 to 3, 4, 5.
func newSupport(t *testing.T, departed ...election.ID) *grants.Support {
	t.Helper()
	var s grants.Support
	s.Reset(roster(t, 2, 3, 4, 5).Succeed(roster(t, 1, 1, 2, 3), departed...), lease)
	return &s
}

func TestMajorityOfBothListsIsNeededUntilSettled(t *testing.T) {
	s := newSupport(t)
	s.Add(4, 10, 0)
	s.Add(5, 10, 0)
	wantUntil(t, s, none)
	s.Add(3, 20, 0)
	wantUntil(t, s, none) // one of three of the old list
	s.Add(1, 5, 0)
	wantUntil(t, s, 5+grantDuration)
	s.RecordAdoption(3, 2)
	s.RecordAdoption(4, 2) // not on the old list
	s.RecordAdoption(3, 2) // once
	s.RecordAdoption(1, 1) // it has the old list
	if s.Settled() {
		t.Fatal("got a settled list after one member of the old list adopted it, want an unsettled one")
	}
	wantUntil(t, s, 5+grantDuration)
	s.RecordAdoption(2, 2)
	if !s.Settled() {
		t.Fatal("got an unsettled list after two of three members of the old list adopted it, want a settled one")
	}
	wantUntil(t, s, 10+grantDuration)
}

func TestDepartedMemberCountsAsAdopted(t *testing.T) {
	s := newSupport(t, 1)
	if s.Settled() {
		t.Fatal("got a settled list after one departed member, want an unsettled one")
	}
	s.AdoptPublication(roster(t, 2, 3, 4, 5).Succeed(roster(t, 1, 1, 2, 3), 1, 2))
	expect.Equalf(t, s.Settled(), true, "settled after two of three members have departed")
}

func TestHolderRetainsOfficeWhenAdoptingList(t *testing.T) {
	first := roster(t, 1, 1, 2, 3)
	var s grants.Support
	s.Reset(first, lease)
	s.Add(1, 10, 0)
	s.Add(2, 20, 0)
	wantUntil(t, &s, 10+grantDuration)
	s.Adopt(roster(t, 2, 3, 4, 5).Succeed(first))
	wantUntil(t, &s, 10+grantDuration)
	s.Add(1, 50, 0) // from now on grants count for the new list
	s.Add(4, 50, 0)
	wantUntil(t, &s, 10+grantDuration)
	s.Add(3, 50, 0)
	wantUntil(t, &s, 50+grantDuration)
	s.Clear()
	s.Add(4, 60, 0)
	wantUntil(t, &s, none)
}

func TestSupportCloneIsIndependent(t *testing.T) {
	s := newSupport(t)
	c := s.Clone()
	for _, id := range []election.ID{1, 2, 3, 4} {
		c.Add(id, 10, 0)
		c.RecordAdoption(id, 2)
	}
	wantUntil(t, s, none)
	wantUntil(t, &c, 10+grantDuration)
	s.RecordAdoption(1, 2)
	if s.Settled() || !c.Settled() {
		t.Error("got a copy that shares its state, want an independent one")
	}
	c.Clear()
	for _, id := range []election.ID{3, 4, 5} {
		c.Add(id, 5, 0)
	}
	wantUntil(t, &c, 5+grantDuration)
}

// identified returns a list of members with these identities.
func identified(t *testing.T, version uint32, identities ...election.Identity) *election.Roster {
	t.Helper()
	ring := make([]election.Member, len(identities))
	for i, identity := range identities {
		ring[i] = election.Member{ID: election.ID(i + 1), Priority: election.Priority(i + 1), Identity: identity}
	}
	r, err := election.NewRoster(version, ring)
	must.Succeed(t, err)
	return r
}

// TestReplacedMemberDoesntCountForPreviousList: its predecessor, which may have granted another process, is the voter.
func TestReplacedMemberDoesntCountForPreviousList(t *testing.T) {
	var s grants.Support
	before := identified(t, 7, 11, 22, 33)
	s.Reset(identified(t, 9, 11, 22, 34).Succeed(before), lease)
	s.Add(3, 20, 0)
	s.Add(1, 10, 0)
	wantUntil(t, &s, none)
	s.RecordAdoption(3, 9)
	s.RecordAdoption(1, 9)
	if s.Settled() {
		t.Fatal("got a settled list after one voter of the old list adopted it, want an unsettled one")
	}
	s.Add(2, 5, 0)
	wantUntil(t, &s, 5+grantDuration)
	s.RecordAdoption(2, 9)
	if !s.Settled() {
		t.Fatal("got an unsettled list, want a settled one")
	}
	wantUntil(t, &s, 10+grantDuration)
}

// TestIdentityIsKnownLater: a later publication names the state directory of a member.
func TestIdentityIsKnownLater(t *testing.T) {
	var s grants.Support
	before := identified(t, 7, 11, 22, 33)
	first := identified(t, 9, 0, 22, 34).Succeed(before)
	s.Reset(first, lease)
	for _, id := range []election.ID{1, 2, 3} {
		s.Add(id, 10, 0)
	}
	wantUntil(t, &s, none) // nobody knows yet whether 1 is the same voter
	s.AdoptPublication(identified(t, 9, 11, 22, 34).Succeed(before))
	s.Add(1, 20, 0)
	wantUntil(t, &s, 10+grantDuration)
	s.Add(2, 20, 0)
	wantUntil(t, &s, 20+grantDuration)
}
