package groupstatus

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// A single agent that reports a future term must not keep the actual coordinator out of
// the status until then, nor raise the floor of the next list.
func TestFutureTermNeedsAMajority(t *testing.T) {
	s := newHarness(5)
	tomorrow := uint64(control.TermAt(noon.Add(23 * time.Hour)))
	report := s.report("a")
	report.Coordinator, report.Term = "a", tomorrow
	status := Evaluate(s.Facts).Status
	if status.Coordinator == nil || status.Coordinator.Pod != "e" || status.Term >= int64(tomorrow) {
		t.Errorf("four of five report e: got coordinator %+v in term %d", status.Coordinator, status.Term)
	}
	for _, name := range []string{"a", "b", "c"} {
		report := s.report(name)
		report.Coordinator, report.Term = "a", tomorrow
	}
	status = Evaluate(s.Facts).Status
	if status.Coordinator == nil || status.Coordinator.Pod != "a" {
		t.Errorf("a majority reports a: got coordinator %+v", status.Coordinator)
	}
}
