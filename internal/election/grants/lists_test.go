package grants_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

func TestAMemberGrantsNothingUnderAnOlderListThanItsOwn(t *testing.T) {
	m := seasoned(t)
	m.asks(0, claim(a, 5), grants.Granted)
	m.adopts(1, 2)
	m.asks(2, renewal(a, 5), grants.VersionTooOld)
	m.asks(2*lease, claim(b, 6), grants.VersionTooOld)
	m.asks(2*lease, under(3, claim(b, 6)), grants.Granted) // a newer one may come first
}

// What a member says that it has adopted, after what it granted.
func TestAMemberSaysThatItAdoptedAListWhenNothingUnderAnOlderOneIsInForce(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(*member)
		// from is when it says that it has adopted list 2.
		from election.Tick
	}{
		{"it granted nothing", func(m *member) { m.adopts(10, 2) }, 10},
		{"a grant under the old list", func(m *member) {
			m.asks(5, claim(a, 5), grants.Granted)
			m.adopts(10, 2)
		}, 5 + lease},
		{"a grant under the new list, which comes first", func(m *member) {
			m.asks(5, under(2, claim(a, 5)), grants.Granted)
			m.adopts(10, 2)
		}, 10},
		{"a renewal under the new list", func(m *member) {
			m.asks(5, claim(a, 5), grants.Granted)
			m.asks(8, under(2, renewal(a, 5)), grants.Granted)
			m.adopts(10, 2)
			m.asks(20, under(2, renewal(a, 5)), grants.Granted)
		}, 5 + lease},
		{"a renewal under the new list after it was adopted", func(m *member) {
			m.asks(5, claim(a, 5), grants.Granted)
			m.adopts(10, 2)
			m.asks(20, under(2, renewal(a, 5)), grants.Granted)
		}, 5 + lease},
		{"a late renewal under the old list", func(m *member) {
			m.asks(5, claim(a, 5), grants.Granted)
			m.asks(8, under(2, renewal(a, 5)), grants.Granted)
			m.asks(9, renewal(a, 5), grants.Granted)
			m.adopts(10, 2)
		}, 9 + lease},
		{"another's under the old list, after one under the new list", func(m *member) {
			m.asks(0, under(2, claim(a, 5)), grants.Granted)
			m.Release(a, 5, 5)
			m.asks(6, claim(b, 6), grants.Granted)
			m.adopts(10, 2)
		}, 6 + lease},
		{"the holder resigned", func(m *member) {
			m.asks(5, claim(a, 5), grants.Granted)
			m.adopts(10, 2)
			m.Release(a, 5, 20)
		}, 20},
		{"the holder is gone", func(m *member) {
			m.asks(5, claim(a, 5), grants.Granted)
			m.adopts(10, 2)
			m.ProcessEnded(a, 20)
		}, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := seasoned(t)
			test.do(m)
			if test.from > m.now {
				m.says(test.from-1, 1)
			}
			m.says(test.from, 2)
		})
	}
}

func TestAMemberThatLostItsMemorySaysThatItAdoptedAListAfterALease(t *testing.T) {
	for _, adopt := range []election.Tick{0, 30} {
		m := forgetful(t)
		if adopt > 0 {
			m.says(0, 0)
		}
		m.adopts(adopt, 2)
		m.says(lease-1, 1)
		m.says(lease, 2)
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
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// counts is how long a grant counts for its holder.
var counts = lease - grants.Margin(lease)

const none election.Tick = 0

// lastsUntil checks until when the grants suffice; none is not at all.
func lastsUntil(t *testing.T, s *grants.Support, want election.Tick) {
	t.Helper()
	if got := s.Until(); got != want && (want != none || got > 0) {
		t.Errorf("the grants suffice until %d, want %d", got, want)
	}
}

func TestAHolderStopsBeforeTheMembersThatGrantedItAreFree(t *testing.T) {
	// With one clock a sixteenth too slow and the other right, and with both
	// wrong by a thirty-second, the holder is first all the same.
	for _, l := range []election.Tick{10, 100, 500, 30_000} {
		holder := l - grants.Margin(l)
		if holder*17 >= l*16 {
			t.Errorf("a lease of %d counts for %d on a slow clock: too long", l, holder)
		}
		if holder*33 >= l*31 {
			t.Errorf("a lease of %d counts for %d on a slow clock, the members' being fast: too long", l, holder)
		}
	}
}

func TestTheOfficeLastsAsLongAsAMajoritysOldestGrant(t *testing.T) {
	var s grants.Support
	s.Reset(roster(t, 1, 1, 2, 3, 4, 5), lease, 0)
	lastsUntil(t, &s, none)
	s.Add(1, 10)
	s.Add(2, 30)
	s.Add(2, 35) // it counts once
	lastsUntil(t, &s, none)
	s.Add(3, 20)
	lastsUntil(t, &s, 10+counts)
	s.Add(4, 40)
	lastsUntil(t, &s, 20+counts)
	s.Add(4, 5) // late
	lastsUntil(t, &s, 20+counts)
	s.Add(9, 50) // a stranger's
	lastsUntil(t, &s, 20+counts)
	s.Clear()
	lastsUntil(t, &s, none)
	s.Add(1, 50)
	s.Add(2, 50)
	lastsUntil(t, &s, none)
}

func TestOfFourMembersTwoAreNoMajority(t *testing.T) {
	var s grants.Support
	s.Reset(roster(t, 1, 1, 2, 3, 4), lease, 0)
	s.Add(1, 10)
	s.Add(2, 10)
	lastsUntil(t, &s, none)
	s.Add(4, 10)
	lastsUntil(t, &s, 10+counts)
}

// opened is the support of a process that has gone over from 1, 2, 3 to 3, 4, 5.
func opened(t *testing.T, departed ...election.ID) *grants.Support {
	t.Helper()
	var s grants.Support
	s.Reset(roster(t, 2, 3, 4, 5).Succeed(roster(t, 1, 1, 2, 3), 7, departed...), lease, 40)
	return &s
}

func TestAMajorityOfBothListsIsNeededUntilTheOldOneHasSettled(t *testing.T) {
	s := opened(t)
	s.Add(4, 10)
	s.Add(5, 10)
	lastsUntil(t, s, none)
	s.Add(3, 20)
	lastsUntil(t, s, none) // one of three of the old list
	s.Add(1, 5)
	lastsUntil(t, s, 5+counts)
	s.RecordAdoption(3, 2, 0)
	s.RecordAdoption(4, 2, 0) // not on the old list
	s.RecordAdoption(3, 2, 0) // once
	s.RecordAdoption(1, 1, 0) // it has the old list
	if s.Settled() {
		t.Fatal("one member of the old list settles it")
	}
	lastsUntil(t, s, 5+counts)
	s.RecordAdoption(2, 2, 0)
	if !s.Settled() {
		t.Fatal("two of three members of the old list don't settle it")
	}
	lastsUntil(t, s, 10+counts)
}

func TestANewTenureNeedsATermAboveThoseUnderTheOldLists(t *testing.T) {
	s := opened(t)
	if s.Floor() != 7 {
		t.Errorf("the floor is %d, want that of the list, 7", s.Floor())
	}
	s.RecordAdoption(1, 1, 99) // it may grant more under the old one
	s.RecordAdoption(2, 2, 20)
	s.RecordAdoption(3, 2, 12)
	if s.Floor() != 20 {
		t.Errorf("the floor is %d, want the highest reported, 20", s.Floor())
	}
	s.RecordAdoption(1, 2, 90) // its grants alone made no tenure
	if s.Floor() != 20 {
		t.Errorf("the floor is %d after the old list has settled, want 20", s.Floor())
	}
}

func TestADepartedMemberCountsAsHavingAdoptedAndGrantedUpToThePresentTerm(t *testing.T) {
	s := opened(t, 1)
	if s.Settled() {
		t.Fatal("one departed member settles the old list")
	}
	if s.Floor() != 40 {
		t.Errorf("the floor is %d, want the clock's reading, 40", s.Floor())
	}
	s.MarkDeparted([]election.ID{1, 2}, 60)
	if !s.Settled() || s.Floor() != 60 {
		t.Errorf("settled %t with floor %d, want settled with 60", s.Settled(), s.Floor())
	}
}

func TestAHolderKeepsItsOfficeWhenItGoesOverToAnotherList(t *testing.T) {
	first := roster(t, 1, 1, 2, 3)
	var s grants.Support
	s.Reset(first, lease, 0)
	s.Add(1, 10)
	s.Add(2, 20)
	lastsUntil(t, &s, 10+counts)
	s.Adopt(roster(t, 2, 3, 4, 5).Succeed(first, 0), 0)
	lastsUntil(t, &s, 10+counts)
	s.Add(1, 50) // what comes in now counts for the new list
	s.Add(4, 50)
	lastsUntil(t, &s, 10+counts)
	s.Add(3, 50)
	lastsUntil(t, &s, 50+counts)
	s.Clear()
	s.Add(4, 60)
	lastsUntil(t, &s, none)
}

func TestACopyOfTheSupportIsIndependent(t *testing.T) {
	s := opened(t)
	c := s.Clone()
	for _, id := range []election.ID{1, 2, 3, 4} {
		c.Add(id, 10)
		c.RecordAdoption(id, 2, 30)
	}
	lastsUntil(t, s, none)
	lastsUntil(t, &c, 10+counts)
	s.RecordAdoption(1, 2, 0)
	if s.Settled() || s.Floor() != 7 || !c.Settled() {
		t.Error("the copy shares what was reported")
	}
}
