package groupstatus

import (
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// formatLoss formats when the loss of the coordinator was reported, as in "after 2s".
func formatLoss(status *v1.ElectionGroupStatus) string {
	if at := status.Protocol.LossReportedAt; at != nil {
		return "after " + at.Sub(noon).String()
	}
	return "none"
}

func TestLossIsReported(t *testing.T) {
	s := newHarness(3)
	r := s.evaluate()
	expect(t, "while there is a coordinator", formatLoss(&r.Status), "none")
	s.reportCoordinator("", s.names...)
	r = s.evaluate()
	expect(t, "after it resigned", formatLoss(&r.Status), "none")
	s.Now = r.RequeueAt
	r = s.evaluate()
	expect(t, "when an election should have ended", formatLoss(&r.Status), "after 1s")
	s.restartOperator()
	s.setTime(time.Minute)
	r = s.evaluate()
	expect(t, "after a restart of the operator", formatLoss(&r.Status), "after 1s")
	for _, name := range s.names {
		s.connect(name)
	}
	s.elect("a")
	r = s.evaluate()
	expect(t, "after the next election", formatLoss(&r.Status), "none")
}

// TestLossWithoutHistory covers a status that was edited or restored while
// the group had no coordinator: the loss isn't reported again, and the next election
// doesn't name the coordinator before.
func TestLossWithoutHistory(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.reportCoordinator("", s.names...)
	s.evaluate()
	s.Group.Status.History = nil
	s.setTime(time.Hour)
	r := s.evaluate()
	expect(t, "events", formatEvents(r.Events), "")
	expect(t, "loss", formatLoss(&r.Status), "none")
	if !r.RequeueAt.IsZero() {
		t.Errorf("got requeue at %v, want none", r.RequeueAt)
	}
	s.elect("a")
	expect(t, "events after the election", formatEvents(s.evaluate().Events), "Normal CoordinatorElected: a became coordinator in term 130896002")
}

// TestLossOfGroupThatWasUnavailable: the condition Available doesn't tell since when there is no coordinator.
func TestLossOfGroupThatWasUnavailable(t *testing.T) {
	s := newHarness(3)
	s.report("a").Digest = "other"
	r := s.evaluate()
	expect(t, "with different lists", formatCondition(&r.Status, v1.ConditionAvailable)[:len("False ListsDiffer")], "False ListsDiffer")
	s.setTime(time.Minute)
	s.report("a").Digest = "d"
	s.reportCoordinator("", s.names...)
	s.evaluate()
	s.setTime(time.Minute + time.Second)
	r = s.evaluate()
	expect(t, "while an election may be in progress", formatLoss(&r.Status), "none")
	s.Now = r.RequeueAt
	r = s.evaluate()
	expect(t, "when it should have ended", formatLoss(&r.Status), "after 1m1s")
}
