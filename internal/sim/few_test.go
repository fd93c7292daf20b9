package sim

import (
	"math/bits"
	"testing"
)

// TestFewFaults: half of the schedules may have all faults, and the others at most nine.
func TestFewFaults(t *testing.T) {
	const given = allFaults | Late | Latency | Redial
	s := &simulation{settings: settings{faults: given | Few}}
	few, possible := 0, Few
	for seed := range uint64(1000) {
		got := s.possibleFaults(seed)
		if got == given {
			continue
		}
		few, possible = few+1, possible|got
		if n := bits.OnesCount64(uint64(got &^ Few)); got&Few == 0 || got&^Few&^given != 0 || n > 9 {
			t.Fatalf("seed %d: got the faults %s", seed, got.names())
		}
	}
	if few < 400 || few > 600 {
		t.Errorf("got %d of 1000 schedules with few faults, want about half", few)
	}
	if possible != given|Few {
		t.Errorf("got schedules with the faults %s, want each one in some", possible.names())
	}
}
