package transport

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestReplacementsOfConnectionsBecomeRare: a peer sends messages for a group that its
// certificate never names, and each connection is replaced as soon as that is due.
func TestReplacementsOfConnectionsBecomeRare(t *testing.T) {
	r := renewals{longest: time.Minute}
	replaced := func(ages ...time.Duration) (due []time.Duration) {
		for _, age := range ages {
			if r.isDue("b", age) {
				due = append(due, age)
			}
		}
		return due
	}
	s := time.Second
	got := replaced(time.Hour, s, 2*s, 3*s, 4*s, 5*s, 9*s, 17*s, 33*s, 60*s, 61*s, 61*s)
	expect.EqualSlicesf(t, got, []time.Duration{time.Hour, 3 * s, 5 * s, 9 * s, 17 * s, 33 * s, 61 * s, 61 * s},
		"connections replaced at the ages")
	if !r.isDue("c", 2*s) {
		t.Error("another peer: got no replacement after two seconds, want one")
	}
	if r.isDue("b", 2*s) || !r.isDue("b", 121*s) || !r.isDue("b", 3*s) {
		t.Error("after two minutes without a problem: want the first wait again")
	}
	r.forget("b")
	if !r.isDue("b", 2*s) {
		t.Error("a peer that has left and joined again: want the first wait")
	}
}
