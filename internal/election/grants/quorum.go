package grants

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// quorum tracks the grants of a majority of one list. Grants are only prolonged, so the moment at which they cease to
// suffice only increases, and in a round of heartbeats it does so once. The grants are sorted only then: with a
// thousand members, sorting them for each grant would take several cores.
type quorum struct {
	// until is when the grants cease to suffice.
	until election.Tick
	// later is the number of members whose grants last longer than that.
	later int
}

var noQuorum = quorum{until: noGrant}

// add records that the grant of a member was prolonged. before is when it would have ended, and grantUntil has when
// those of all members end. counts reports whether a member's grants count for this list.
func (q *quorum) add(
	roster *election.Roster, counts func(election.ID) bool, id election.ID, before election.Tick,
	grantUntil []election.Tick,
) {
	if before > q.until || grantUntil[id] <= q.until || !counts(id) {
		return
	}
	if q.later++; q.later >= roster.Majority() {
		q.compute(roster, counts, grantUntil)
	}
}

func (q *quorum) compute(roster *election.Roster, counts func(election.ID) bool, grantUntil []election.Tick) {
	var buffer [16]election.Tick
	until := buffer[:0]
	for _, m := range roster.Ring() {
		at := noGrant
		if counts(m.ID) {
			at = grantUntil[m.ID]
		}
		until = append(until, at)
	}
	slices.Sort(until)
	q.until = until[len(until)-roster.Majority()]
	after, _ := slices.BinarySearch(until, q.until+1)
	q.later = len(until) - after
}

// Bound returns a term that a member reports: it is at least every term that the
// member has granted. It returns false if the member has reported none.
type Bound func(election.ID) (election.Term, bool)

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
