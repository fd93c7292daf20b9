package groupstatus

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// finding is the result of a check. The zero value means that the check found nothing.
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

// problem returns that of a plan as a finding.
func problem(p *membership.Problem) finding {
	if p == nil {
		return finding{}
	}
	return isFalse(p.Reason, p.Message)
}

// setConditions sets all conditions. It returns the time of the next evaluation, or zero.
func (e *evaluation) setConditions(conditions *[]metav1.Condition) (requeueAt time.Time) {
	vacant, requeueAt := e.vacancy()
	disagree, later := e.disagreement()
	requeueAt = facts.Earliest(requeueAt, later)
	e.disagrees = disagree.reason
	// An agent that has not been contacted may still be in its previous state.
	connected := e.unlessContactPending(v1.ConditionAgentsConnected, e.connectedCondition())
	noAgreement := vacant
	switch {
	case disagree.status == metav1.ConditionTrue:
		e.minority = disagree
	case vacant.reason == "" || disagree.reason == v1.ReasonListsDiffer: // That may be why there is no coordinator.
		noAgreement = disagree
	}
	blocked, unavailable := e.blocked(noAgreement, connected), e.unavailable(noAgreement, connected)
	hadCoordinator := e.Group.Status.Coordinator != nil
	if len(e.reports) == 0 && hadCoordinator == (e.coordinator != nil) {
		blocked = e.problemUnlessContactPending(v1.ConditionReady, blocked)
		unavailable = e.problemUnlessContactPending(v1.ConditionAvailable, unavailable)
	}
	for _, c := range []struct {
		of v1.ConditionType
		finding
	}{
		{v1.ConditionReady, e.readyCondition(blocked)},
		{v1.ConditionAvailable, cmp.Or(unavailable, isTrue(v1.ReasonElected, "The agents agree on the coordinator"))},
		{v1.ConditionProgressing, e.progressingCondition(disagree)},
		{v1.ConditionDegraded, e.degradedCondition()},
		{v1.ConditionAgentsConnected, connected},
	} {
		setCondition(e.Facts, conditions, c.of, c.finding)
	}
	if stalled := e.stalled(); stalled.reason != "" {
		setCondition(e.Facts, conditions, v1.ConditionStalled, isTrue(stalled.reason, stalled.message))
	} else { // A group has this condition only while it is True.
		meta.RemoveStatusCondition(conditions, string(v1.ConditionStalled))
	}
	return requeueAt
}

func setCondition(f *facts.Facts, conditions *[]metav1.Condition, of v1.ConditionType, found finding) {
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: string(of), Status: found.status, Reason: string(found.reason), Message: found.message,
		ObservedGeneration: f.Group.Generation, LastTransitionTime: inSeconds(f.Now),
	})
}

// inSeconds returns a time as the API server stores it.
func inSeconds(at time.Time) metav1.Time { return metav1.NewTime(at.UTC().Truncate(time.Second)) }

// inMicros returns a time as the API server stores it where microseconds matter.
func inMicros(at time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(at.UTC().Truncate(time.Microsecond))
}

// Refused returns the status that an operator writes instead of one that the API server refuses as invalid: the present
// one, with what it publishes, and the reason. So users see it, while the operator routes the traffic as if it had
// written the status.
func Refused(f *facts.Facts, published v1.ProtocolState) *v1.ElectionGroupStatus {
	status := f.Group.Status.DeepCopy()
	status.Protocol.MemberList, status.Protocol.Document = published.MemberList, published.Document
	setCondition(f, &status.Conditions, v1.ConditionReady, isFalse(v1.ReasonWriteFailed,
		"The status isn't up to date, because the API server refuses it: "+f.Errors.Status))
	return status
}

// oldCondition returns a condition in the current status, or nil.
func (e *evaluation) oldCondition(of v1.ConditionType) *metav1.Condition {
	return meta.FindStatusCondition(e.Group.Status.Conditions, string(of))
}

// unlessContactPending returns the finding. While the operator has not contacted every agent, it returns the condition
// in the status instead, unless the finding is a new reason for False.
func (e *evaluation) unlessContactPending(of v1.ConditionType, found finding) finding {
	old := e.oldCondition(of)
	if old != nil && e.pendingContacts > 0 &&
		(found.status != metav1.ConditionFalse || old.Reason == string(found.reason)) {
		return finding{old.Status, v1.Reason(old.Reason), old.Message}
	}
	return found
}

// problemUnlessContactPending is unlessContactPending for what is wrong: a condition that is True has no problem.
func (e *evaluation) problemUnlessContactPending(of v1.ConditionType, found finding) finding {
	if retained := e.unlessContactPending(of, found); retained.status != metav1.ConditionTrue {
		return retained
	}
	return finding{}
}

// deadline returns the end of a delay after a moment, and whether that has passed. It
// adds a second, because the API server stores the moment with a resolution of a second.
func (e *evaluation) deadline(moment time.Time, delay time.Duration) (until time.Time, over bool) {
	until = moment.Add(delay + time.Second)
	return until, !e.Now.Before(until)
}
