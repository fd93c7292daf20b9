package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// A member that reports at each heartbeat that the coordinator's term is too low ends
// its tenure less and less often. If it was silent for long, it is believed at once.
func TestRaisedTermsGetRare(t *testing.T) {
	h := newCandidate(t, office.Available)
	tenures := func() int { return len(h.tokens) }
	report := func() { h.receive(4, election.Deny, h.machines[self].Status().Term+1, election.Hold{}) }
	start, last, longest := tenures(), h.now, election.Tick(0)
	for range 200 * lease / heartbeat {
		before := tenures()
		report()
		h.advance(heartbeat)
		if tenures() > before {
			longest = max(longest, h.now-last)
			last = h.now
		}
	}
	if got := tenures() - start; got < 6 || got > 9 || longest < 60*lease {
		t.Errorf("got %d tenures in 200 leases and %d ticks between two, want about 8 and 64 leases", got, longest)
	}
	h.advance(130 * lease)
	for i := range 2 {
		want := tenures() + 1
		report()
		h.advance(heartbeat)
		if got := tenures(); got != want {
			t.Errorf("report %d after a long silence: got %d tenures, want %d", i+1, got, want)
		}
		h.advance(lease)
	}
}
