package control_test

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// TestNextFloorOfOperatorAndAgentsAgree: the operator computes the floor as the core does,
// without a floor, with one that clocks have passed, one that they will reach, and one that
// they never reach.
func TestNextFloorOfOperatorAndAgentsAgree(t *testing.T) {
	noon := time.Date(2026, time.November, 17, 12, 0, 0, 0, time.UTC)
	for _, now := range []time.Time{time.Unix(0, 0), time.Date(2026, time.January, 1, 0, 0, 20, 0, time.UTC), noon} {
		reading := control.EpochAt(now)
		floors := []int64{0, 1, 749, 750, 1500, 1501, control.MaxTerm - 1, control.MaxTerm}
		for ahead := int64(-5000); ahead < 5000; ahead++ {
			floors = append(floors, max(0, (reading+ahead)<<4+ahead&15))
		}
		for _, floor := range floors {
			want := int64(election.NextFloor(election.Term(floor), election.Epoch(reading)))
			if got := control.NextFloor(floor, now); got != want {
				t.Fatalf("clock at %d, floor %d: got next floor %d, want %d as in the core", reading, floor, got, want)
			}
		}
	}
}

// TestTokensAreExactInJSONNumbers: JavaScript and many readers of JSON round numbers above 2^53.
func TestTokensAreExactInJSONNumbers(t *testing.T) {
	newYear := time.Date(2069, time.January, 1, 0, 0, 0, 0, time.UTC)
	if token := election.TokenOf(election.Term(control.TermAt(newYear)), election.MaxPriority); token >= 1<<53 {
		t.Errorf("got token %d in 2069, want one below 2^53", token)
	}
}
