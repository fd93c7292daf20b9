package groupstatus

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// One agent that speaks of a term of tomorrow doesn't keep everybody else's
// coordinator out of the status until tomorrow, nor out of the next list's floor.
func TestTermOfTomorrowTakesAMajority(t *testing.T) {
	s := newHarness(5)
	tomorrow := uint64(control.TermAt(noon)) + 23*3600*10
	said := s.report("a")
	said.Coordinator, said.Term = "a", tomorrow
	status := Evaluate(s.Facts).Status
	if status.Coordinator == nil || status.Coordinator.Pod != "e" || status.Term >= int64(tomorrow) {
		t.Errorf("four of five say that e leads, but: %+v in term %d", status.Coordinator, status.Term)
	}
	for _, name := range []string{"a", "b", "c"} {
		said := s.report(name)
		said.Coordinator, said.Term = "a", tomorrow
	}
	status = Evaluate(s.Facts).Status
	if status.Coordinator == nil || status.Coordinator.Pod != "a" {
		t.Errorf("a majority says that a leads, and the operator's clock may be the wrong one, but: %+v", status.Coordinator)
	}
}
