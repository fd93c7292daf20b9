package grants

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// A member that lost its memory recovers what it needs to know about its earlier
// incarnations from the other members: see the package comment.

// Forgot reports whether what earlier incarnations may have granted matters: this one
// has granted no higher term.
func (l *Ledger) Forgot() bool { return l.forgotten > l.highestGranted }

// Recovering reports whether the member still relies on its clock for what earlier
// incarnations granted.
func (l *Ledger) Recovering() bool { return l.Forgot() && !l.recovered }

// RecoveryStart returns the moment from which the answers of other members count:
// the leases of all grants of earlier incarnations have expired.
func (l *Ledger) RecoveryStart() election.Tick { return l.silentUntil }

// RecoveryDue returns the moment up to which a claim that may have to be refused is
// deferred, because the answers of the other members are on their way.
func (l *Ledger) RecoveryDue() election.Tick {
	if !l.Recovering() {
		return l.silentUntil
	}
	return l.silentUntil + l.lease/8
}

// Recover replaces the reading of the clock at boot by the bound that follows from the
// answers of other members. If the clock hasn't reached that bound, the reading remains:
// it is lower, and this member could not grant a term above the bound. Later answers may
// lead to a lower bound.
func (l *Ledger) Recover(bound election.Term, now election.Tick) {
	switch {
	case now < l.silentUntil:
	case l.recovered:
		l.forgotten = min(l.forgotten, bound)
	case bound <= l.clock.Ceiling(now):
		l.forgotten, l.recovered = bound, true
	}
}

// Bound returns a term that a member reports: it is at least every term that the
// member has granted. It returns false if the member has reported none.
type Bound func(election.ID) (election.Term, bool)

// BoundOfOthers returns a bound on the terms of all tenures under a list to which a
// member contributed before the others reported their bounds. Each majority with the
// member includes one of any Len - Majority + 1 others. The result is false if too few
// of them have reported.
func BoundOfOthers(roster *election.Roster, member election.ID, reported Bound) (election.Term, bool) {
	if !roster.Has(member) {
		return 0, true // its grants don't count
	}
	others := func(id election.ID) (election.Term, bool) {
		if id == member {
			return 0, false
		}
		return reported(id)
	}
	return LowestBound(roster, roster.Len()-roster.Majority()+1, others)
}

// LowestBound returns the lowest term that is at least the bounds of count members. It
// returns false if fewer have reported.
func LowestBound(roster *election.Roster, count int, reported Bound) (election.Term, bool) {
	var buffer [16]election.Term
	lowest := buffer[:0]
	for _, m := range roster.Ring() {
		if bound, ok := reported(m.ID); ok {
			lowest = append(lowest, bound)
		}
	}
	if len(lowest) < count {
		return 0, false
	}
	slices.Sort(lowest)
	return lowest[count-1], true
}
