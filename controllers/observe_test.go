package controllers

import (
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// An alert depends on it: it fires for agents that name two coordinators, and not while
// settings propagate.
func TestDividedMeansDifferentCoordinators(t *testing.T) {
	for reason, want := range map[v1.Reason]struct{ disagreeing, divided bool }{
		"":                          {false, false},
		v1.ReasonCoordinatorsDiffer: {true, true},
		v1.ReasonListsDiffer:        {true, false},
		v1.ReasonSettingsDiffer:     {true, false},
	} {
		s := &snapshot{group: &v1.ElectionGroup{}}
		if got := s.gauges(&groupstatus.Result{Disagreement: reason}); got.disagreeing != want.disagreeing || got.divided != want.divided {
			t.Errorf("%s: got %+v, want %+v", reason, got, want)
		}
	}
}

// TestFailoversAfterFailuresCountSeparately: planned changes are much faster.
func TestFailoversAfterFailuresCountSeparately(t *testing.T) {
	for reason, want := range map[v1.EndReason]string{
		v1.EndCrash: "failure", v1.EndSessionClosed: "failure", v1.EndStepDown: "planned", v1.EndPodDeleted: "planned", v1.EndUnknown: "unknown",
	} {
		if got := endOfTenureBefore([]v1.Tenure{{Pod: "b"}, {Pod: "c", EndReason: reason}, {Pod: "b", EndReason: v1.EndSilence}}); got != want {
			t.Errorf("%s: got %s, want %s", reason, got, want)
		}
	}
	expect.Equalf(t, endOfTenureBefore([]v1.Tenure{{Pod: "b"}}), "unknown", "first tenure")
}
