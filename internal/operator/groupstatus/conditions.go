package groupstatus

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// finding is what one check has found: nothing, if it has no reason.
type finding struct {
	status  metav1.ConditionStatus
	reason  v1.Reason
	message string
}

func isTrue(reason v1.Reason, message string) finding {
	return finding{metav1.ConditionTrue, reason, message}
}

func isFalse(reason v1.Reason, message string) finding {
	return finding{metav1.ConditionFalse, reason, message}
}

func isUnknown(message string) finding {
	return finding{metav1.ConditionUnknown, v1.ReasonNoReports, message}
}

// judge makes the conditions, and returns when to look again, if ever.
func (h *evaluation) setConditions(conditions *[]metav1.Condition) (again time.Time) {
	elected, once := h.electedCondition()
	agreed, later := h.agreedCondition()
	if again = once; again.IsZero() || !later.IsZero() && later.Before(again) {
		again = later
	}
	connected := h.connectedCondition()
	// What hasn't been asked may still be as bad as it was.
	agreed, connected = h.unlessContactPending(v1.Agreed, agreed), h.unlessContactPending(v1.AgentsConnected, connected)
	ready := h.readyCondition(elected, agreed, connected)
	if led := h.Group.Status.Coordinator != nil; len(h.reports) == 0 && led == (h.coordinator != nil) {
		elected = h.unlessContactPending(v1.CoordinatorElected, elected)
		if kept := h.unlessContactPending(v1.Ready, ready); kept.status != metav1.ConditionTrue || h.countUp() == len(h.rows) {
			ready = kept // But all isn't well with a member of whom nothing was known.
		}
	}
	for _, c := range []struct {
		of v1.ConditionType
		finding
	}{{v1.Ready, ready}, {v1.CoordinatorElected, elected}, {v1.Agreed, agreed}, {v1.AgentsConnected, connected}} {
		meta.SetStatusCondition(conditions, metav1.Condition{
			Type: string(c.of), Status: c.status, Reason: string(c.reason), Message: c.message,
			ObservedGeneration: h.Group.Generation,
			LastTransitionTime: metav1.NewTime(h.Now.UTC().Truncate(time.Second)),
		})
	}
	return again
}

// was is a condition as it stands in the status, nil if it doesn't.
func (h *evaluation) previousCondition(of v1.ConditionType) *metav1.Condition {
	return meta.FindStatusCondition(h.Group.Status.Conditions, string(of))
}

// unlessContactPending is a finding, unless somebody hasn't been asked and there is no bad
// news in it: then what was known stays.
func (h *evaluation) unlessContactPending(of v1.ConditionType, found finding) finding {
	was := h.previousCondition(of)
	if was != nil && h.contactPending && (found.status != metav1.ConditionFalse || was.Reason == string(found.reason)) {
		return finding{was.Status, v1.Reason(was.Reason), was.Message}
	}
	return found
}

// since is how long something must have been so for its agents to have noticed:
// for their patience, counted from a time of which the API server keeps the
// second.
func (h *evaluation) suspicionTimeoutAfter(moment time.Time) (until time.Time, over bool) {
	return h.delayAfter(moment, h.suspicionTimeout())
}

func (h *evaluation) delayAfter(moment time.Time, wait time.Duration) (until time.Time, over bool) {
	until = moment.Add(wait + time.Second)
	return until, !h.Now.Before(until)
}

// check looks at one thing.
type check func() finding

// first is what the first check finds that finds something. The last always does.
func firstFinding(checks ...check) (found finding) {
	for _, look := range checks {
		if found = look(); found != (finding{}) {
			break
		}
	}
	return found
}

// always is the end of a row of checks.
func constant(f finding) check { return func() finding { return f } }
