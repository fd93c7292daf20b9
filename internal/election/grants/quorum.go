package grants

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// quorum tracks the grants of a majority of one list. Grants are only prolonged, so the
// moment at which they cease to suffice only increases, and in a round of heartbeats it
// does so once. The grants are sorted only then: with a thousand members, sorting them
// for each grant would take several cores.
type quorum struct {
	// until is when the grants cease to suffice.
	until election.Tick
	// later is the number of members whose grants last longer than that.
	later int
}

var noQuorum = quorum{until: noGrant}

// add records that the grant of a member was prolonged. before is when it would have
// ended, and grantUntil has when those of all members end.
func (q *quorum) add(roster *election.Roster, id election.ID, before election.Tick, grantUntil []election.Tick) {
	if before > q.until || grantUntil[id] <= q.until || !roster.Has(id) {
		return
	}
	if q.later++; q.later < roster.Majority() {
		return
	}
	var buffer [16]election.Tick
	until := buffer[:0]
	for _, m := range roster.Ring() {
		until = append(until, grantUntil[m.ID])
	}
	slices.Sort(until)
	q.until = until[len(until)-roster.Majority()]
	after, _ := slices.BinarySearch(until, q.until+1)
	q.later = len(until) - after
}
