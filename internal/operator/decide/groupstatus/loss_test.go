package groupstatus

import (
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// formatLoss formats when the loss of the coordinator was reported, as in "after 2s".
func formatLoss(status *v1.ElectionGroupStatus) string {
	if at := status.Protocol.LossReportedAt; at != nil {
		return "after " + at.Sub(noon).String()
	}
	return "none"
}

// TestLossWithoutHistory covers a status that was edited or restored while the group had no coordinator: the loss isn't
// reported again, and the next election doesn't name the coordinator before.
func TestLossWithoutHistory(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.reportCoordinator("", s.names...)
	s.evaluate()
	s.Group.Status.History = nil
	s.setTime(time.Hour)
	r := s.evaluate()
	expect.Equalf(t, formatEvents(r.Events), "", "events")
	expect.Equalf(t, formatLoss(&r.Status), "none", "loss")
	if !r.RequeueAt.IsZero() {
		t.Errorf("got requeue at %v, want none", r.RequeueAt)
	}
	s.elect("a")
	expect.Equalf(t, formatEvents(s.evaluate().Events),
		"Normal CoordinatorElected: a became coordinator in term 65538", "events after the election")
}

// TestLossOfGroupThatWasUnavailable: the condition Available doesn't tell since when there is no coordinator.
func TestLossOfGroupThatWasUnavailable(t *testing.T) {
	s := newHarness(3)
	s.report("a").Digest, s.report("b").Digest = "other", "third"
	r := s.evaluate()
	expect.Equalf(t, formatCondition(&r.Status, v1.ConditionAvailable)[:len("False ListsDiffer")],
		"False ListsDiffer", "with different lists")
	s.setTime(time.Minute)
	s.report("a").Digest, s.report("b").Digest = "d", "d"
	s.reportCoordinator("", s.names...)
	s.evaluate()
	s.setTime(time.Minute + time.Second)
	r = s.evaluate()
	expect.Equalf(t, formatLoss(&r.Status), "none", "while an election may be in progress")
	s.Now = r.RequeueAt
	r = s.evaluate()
	expect.Equalf(t, formatLoss(&r.Status), "after 1m1s", "when it should have ended")
}
