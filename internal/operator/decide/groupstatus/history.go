package groupstatus

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
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
	if was != nil && (now == nil || now.Pod != was.Pod || now.Term != was.Term) {
		history[0].Until, history[0].EndReason = new(metav1.NewMicroTime(e.Now.UTC().Truncate(time.Microsecond))), v1.EndUnknown
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
		tenure.Until, tenure.EndReason = nil, ""
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

// measureGap sets the time without a coordinator before a tenure, and the end of the
// tenure before, which is that much earlier. The new coordinator's own measurement takes
// precedence. Otherwise the longest counts, because an agent may learn late of the loss.
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
	if gap == nil {
		return
	}
	tenure.GapMicros = new(min(max(0, *gap), maxGap.Microseconds()))
	until := tenure.From.Add(-time.Duration(*tenure.GapMicros) * time.Microsecond)
	if before.Until != nil && until.After(before.From.Time) {
		before.Until = new(metav1.NewMicroTime(until))
	}
}

// explainEnd sets the reason for the end of a tenure, if agents report one. What most agents
// report counts, except that only the coordinator itself knows why it resigned.
func (e *evaluation) explainEnd(t *v1.Tenure) {
	if t.EndReason != v1.EndUnknown && t.EndReason != v1.EndHandOver {
		return // The tenure lasts, or the reason is known.
	}
	votes := map[v1.EndReason]int{}
	for _, r := range e.endings(t) {
		reason := endReason(r.Ended.Cause)
		if r.Pod == t.Pod && (reason == v1.EndStepDown || reason == v1.EndLapse) {
			t.EndReason = reason
			return
		}
		votes[reason]++
	}
	if t.EndReason == v1.EndUnknown {
		t.EndReason = mostVoted(votes)
	}
}

func mostVoted(votes map[v1.EndReason]int) v1.EndReason {
	best, most := v1.EndUnknown, 0
	for _, reason := range []v1.EndReason{v1.EndCrash, v1.EndHandOver, v1.EndMembership, v1.EndSilence, v1.EndLapse, v1.EndStepDown} {
		if votes[reason] > most {
			best, most = reason, votes[reason]
		}
	}
	return best
}

func endReason(cause control.EndCause) v1.EndReason {
	switch cause {
	case control.EndCrash:
		return v1.EndCrash
	case control.EndSilence:
		return v1.EndSilence
	case control.EndHandOver:
		return v1.EndHandOver
	case control.EndStepDown:
		return v1.EndStepDown
	case control.EndLapse:
		return v1.EndLapse
	case control.EndMembership:
		return v1.EndMembership
	case control.EndUnknown:
	}
	return v1.EndUnknown
}
