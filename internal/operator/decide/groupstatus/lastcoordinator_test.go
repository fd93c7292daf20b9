package groupstatus

import (
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// formatLast formats status.lastCoordinator, as in "c, loss reported after 2s".
func formatLast(status *v1.ElectionGroupStatus) string {
	last := status.LastCoordinator
	switch {
	case last == nil:
		return "none"
	case last.LossReportedAt == nil:
		return last.Pod
	}
	return last.Pod + ", loss reported after " + last.LossReportedAt.Sub(noon).String()
}

func TestLastCoordinator(t *testing.T) {
	s := newHarness(3)
	r := s.evaluate()
	expect(t, "while there is a coordinator", formatLast(&r.Status), "none")
	s.reportCoordinator("", s.names...)
	r = s.evaluate()
	expect(t, "after it resigned", formatLast(&r.Status), "c")
	s.Now = r.RequeueAt
	r = s.evaluate()
	expect(t, "when an election should have ended", formatLast(&r.Status), "c, loss reported after 1s")
	s.restartOperator()
	s.setTime(time.Minute)
	r = s.evaluate()
	expect(t, "after a restart of the operator", formatLast(&r.Status), "c, loss reported after 1s")
	for _, name := range s.names {
		s.connect(name)
	}
	s.elect("a")
	r = s.evaluate()
	expect(t, "after the next election", formatLast(&r.Status), "none")
}

// TestStatusWithoutLastCoordinator covers a status that was edited or restored while
// the group had no coordinator: the loss isn't reported again, and the next election
// doesn't name the coordinator before.
func TestStatusWithoutLastCoordinator(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.reportCoordinator("", s.names...)
	s.evaluate()
	s.Group.Status.LastCoordinator, s.Group.Status.History = nil, nil
	s.setTime(time.Hour)
	r := s.evaluate()
	expect(t, "events", formatEvents(r.Events), "")
	expect(t, "last coordinator", formatLast(&r.Status), "none")
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
	expect(t, "while an election may be in progress", formatLast(&r.Status), "c")
	s.Now = r.RequeueAt
	r = s.evaluate()
	expect(t, "when it should have ended", formatLast(&r.Status), "c, loss reported after 1m1s")
}
