package groupstatus

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// maxTenures is the number of tenures in the history.
const maxTenures = 10

// maxGap bounds what an agent may report as the time without a coordinator.
const maxGap = 10 * 365 * 24 * time.Hour

// updateHistory sets the history of the next status. It changes the history only if the
// status changes anyway, so it never causes a write.
func (e *evaluation) updateHistory(next *v1.ElectionGroupStatus) {
	if equality.Semantic.DeepEqual(&e.Group.Status, next) {
		return
	}
	was, now := e.Group.Status.Coordinator, next.Coordinator
	history := startTenure(next.History, was) // A status from a backup may lack the tenure.
	if was != nil && !facts.SameTenure(was, now) {
		history[0].Until, history[0].EndReason = new(inMicros(e.Now)), v1.EndUnknown
	}
	started := len(history)
	history = startTenure(history, now)
	if len(history) > 1 && len(history) > started {
		e.measureGap(&history[0], &history[1])
	}
	for i := range history {
		e.explainEnd(&history[i])
	}
	next.History = history[:min(len(history), maxTenures)]
}

// startTenure returns the history with the tenure of a coordinator at the front. If the
// history has the tenure already, it lasts again: in Available mode there may be two
// coordinators, and the status has the newer one as long as that lasts.
func startTenure(history []v1.Tenure, c *v1.Coordinator) []v1.Tenure {
	if c == nil {
		return history
	}
	same := func(t v1.Tenure) bool { return t.Pod == c.Pod && t.Term == c.Term }
	tenure := v1.Tenure{Number: 1, Pod: c.Pod, Term: c.Term, From: c.ElectedAt}
	if len(history) > 0 {
		newest := slices.MaxFunc(history, func(a, b v1.Tenure) int { return cmp.Compare(a.Number, b.Number) })
		tenure.Number = newest.Number + 1
	}
	if i := slices.IndexFunc(history, same); i >= 0 {
		tenure = history[i]
		tenure.Until, tenure.EndReason, tenure.EndedBy = nil, "", ""
		history = slices.Delete(history, i, i+1)
	}
	return slices.Insert(history, 0, tenure)
}

// endings returns what agents report about the end of a tenure.
func (e *evaluation) endings(t *v1.Tenure) (all []*control.Report) {
	for _, r := range e.reports {
		ended, lasts := r.Ended, r.Coordinator == t.Pod && int64(r.Term) == t.Term
		if ended != nil && ended.Coordinator == t.Pod && int64(ended.Term) == t.Term && !lasts {
			all = append(all, r)
		}
	}
	return all
}

// measureGap sets the time without a coordinator before a tenure, and the end of the tenure before, which is that much
// earlier. The new coordinator's own measurement takes precedence. Otherwise the longest counts, because an agent may
// learn late of the loss. If no agent has measured it, it is the time that the operator has seen.
func (e *evaluation) measureGap(tenure, before *v1.Tenure) {
	var gap *int64
	for _, r := range e.endings(before) {
		measured := r.Ended.GapMicros
		if measured == nil || r.Coordinator != tenure.Pod || int64(r.Term) != tenure.Term {
			continue
		}
		if gap == nil || *measured > *gap || r.Pod == tenure.Pod {
			gap = measured
		}
		if r.Pod == tenure.Pod {
			break
		}
	}
	if gap == nil && before.Until != nil {
		if seen := tenure.From.Sub(before.Until.Time); seen > 0 {
			gap = new(seen.Microseconds())
		} else { // The operator learned of the end from the next tenure, so it doesn't know when that was.
			until := tenure.From
			if until.Before(&before.From) {
				until = before.From
			}
			before.Until = &until
		}
	}
	if gap == nil {
		return
	}
	tenure.GapMicros = new(min(max(0, *gap), maxGap.Microseconds()))
	until := tenure.From.Add(-time.Duration(*tenure.GapMicros) * time.Microsecond)
	if before.Until != nil && until.After(before.From.Time) {
		before.Until = new(metav1.NewMicroTime(until))
	}
}

// explainEnd sets the reason for the end of a tenure, or improves it. The operator itself knows that it
// followed from the deletion of the pod.
func (e *evaluation) explainEnd(t *v1.Tenure) {
	if t.EndReason == v1.EndUnknown || t.EndReason == v1.EndHandOver {
		t.EndReason = e.reportedReason(t)
	}
	if e.podDeletedBefore(t) && slices.Contains(followFromDeletion, t.EndReason) {
		t.EndReason = v1.EndPodDeleted
	}
	if pod := e.Pods[t.Pod]; t.EndReason == v1.EndStepDown && t.EndedBy == "" && pod != nil {
		t.EndedBy = v1.StepDownBy(pod.Annotations, e.Group.Name, t.Term)
	}
}

// followFromDeletion are the reasons that agents report when their pod is being deleted. Its application may end first.
var followFromDeletion = []v1.EndReason{
	v1.EndHandOver, v1.EndAgentStopped, v1.EndEvacuated, v1.EndSessionClosed, v1.EndNotRenewed, v1.EndProbeFailed,
}

// podDeletedBefore reports whether a tenure ended after the deletion of its pod was requested.
func (e *evaluation) podDeletedBefore(t *v1.Tenure) bool {
	pod := e.Pods[t.Pod]
	if t.Until == nil || pod == nil || pod.DeletionTimestamp == nil {
		return false
	}
	requested := pod.DeletionTimestamp.Time // to the second
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		requested = requested.Add(-time.Duration(*seconds) * time.Second)
	}
	return !t.Until.Time.Before(requested)
}

// reportedReason returns why a tenure ended, if agents report it. What most agents report counts, except
// that the coordinator itself knows best why it resigned.
func (e *evaluation) reportedReason(t *v1.Tenure) v1.EndReason {
	votes := map[v1.EndReason]int{}
	for _, r := range e.endings(t) {
		reason := endReasons[r.Ended.Cause]
		if r.Pod == t.Pod && slices.Contains(ownReasons, reason) {
			return reason
		}
		votes[reason]++
	}
	if t.EndReason != v1.EndUnknown {
		return t.EndReason
	}
	best, most := v1.EndUnknown, 0
	inOrder := slices.Concat([]v1.EndReason{v1.EndCrash}, ownReasons,
		[]v1.EndReason{v1.EndHandOver, v1.EndMembership, v1.EndSilence})
	for _, reason := range inOrder {
		if votes[reason] > most {
			best, most = reason, votes[reason]
		}
	}
	return best
}

// ownReasons are those that others know only from the coordinator.
var ownReasons = []v1.EndReason{
	v1.EndLapse, v1.EndSessionClosed, v1.EndNotRenewed, v1.EndProbeFailed, v1.EndStepDown,
	v1.EndPreempted, v1.EndAgentStopped,
	v1.EndEvacuated,
}

// endReasons are the reasons for the causes that agents report. The operator excludes a member if its pod is
// being deleted, or its node is cordoned or evacuated.
var endReasons = map[control.EndCause]v1.EndReason{
	control.EndCrash: v1.EndCrash, control.EndSilence: v1.EndSilence, control.EndLapse: v1.EndLapse,
	control.EndHandOver: v1.EndHandOver, control.EndMembership: v1.EndMembership, control.EndStepDown: v1.EndStepDown,
	control.EndPreempted: v1.EndPreempted, control.EndExcluded: v1.EndEvacuated, control.EndStopped: v1.EndAgentStopped,
	control.EndSessionClosed: v1.EndSessionClosed, control.EndNotRenewed: v1.EndNotRenewed,
	control.EndProbeFailed: v1.EndProbeFailed,
}
