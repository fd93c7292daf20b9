package groupstatus

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// vacancy returns why there is no coordinator, and the time of the next evaluation. Without reports, there may be one.
func (e *evaluation) vacancy() (found finding, requeueAt time.Time) {
	if e.coordinator != nil || len(e.reports) == 0 {
		return finding{}, requeueAt
	}
	electing := isFalse(v1.ReasonElecting, "An election is in progress")
	found = cmp.Or(e.noMajority(), e.noEligibleMember(), e.membersTooSlow(), electing)
	found.message = "There is no coordinator. " + found.message
	last := e.lastCoordinator()
	if last == "" {
		return found, requeueAt
	}
	found.message += "; the last coordinator was " + last
	return found, e.reportLoss()
}

// lastCoordinator returns the most recent coordinator according to the status, or "".
func (e *evaluation) lastCoordinator() string {
	switch status := &e.Group.Status; {
	case status.Coordinator != nil:
		return status.Coordinator.Pod
	case len(status.History) > 0:
		return status.History[0].Pod
	}
	return ""
}

// reportLoss records that the loss of the last coordinator is reported, if there has been none for the suspicion
// timeout: Events then returns an event. Otherwise it returns the time at which that is due.
func (e *evaluation) reportLoss() (requeueAt time.Time) {
	if e.lossReportedAt != nil {
		return requeueAt
	}
	until, over := e.deadline(e.vacantSince(), e.Group.Spec.Timing.SuspicionTimeout())
	if !over {
		return until
	}
	e.lossReportedAt = new(inSeconds(e.Now))
	return requeueAt
}

// vacantSince returns since when the status says that there is no coordinator, or now. While no agent was
// connected, there may have been one.
func (e *evaluation) vacantSince() time.Time {
	status, old := &e.Group.Status, e.oldCondition(v1.ConditionAvailable)
	if status.Coordinator != nil || old == nil || old.Status != metav1.ConditionFalse {
		return e.Now
	}
	since := old.LastTransitionTime.Time
	if h := status.History; len(h) > 0 && h[0].Until != nil && h[0].Until.After(since) {
		since = h[0].Until.Time // Available was False before, for another reason.
	}
	return since
}

// noMembers returns the problem with the members if there is no list yet.
func (e *evaluation) noMembers() finding {
	if e.List != nil {
		return finding{}
	}
	return problem(e.Problem)
}

func (e *evaluation) noReports() finding {
	switch {
	case len(e.reports) > 0:
		return finding{}
	case e.List == nil:
		return isUnknown("No agent has reported, because there is no member list yet")
	}
	return isUnknown("No agent that uses the current member list is connected")
}

func (e *evaluation) noMajority() finding {
	up, majority := len(e.rows)-len(e.down()), len(e.members)/2+1
	if !e.needsMajority() || up >= majority {
		return finding{}
	}
	return isFalse(v1.ReasonNoMajority, fmt.Sprintf("%d of %d members %s up, and a coordinator needs %d",
		up, len(e.members), membership.Plural(up, "is", "are"), majority))
}

// membersTooSlow reports round trips that are too long for the lease. The shortest one counts: the
// others may be of agents that are farther away.
func (e *evaluation) membersTooSlow() finding {
	var least *control.TooSlow
	for _, r := range e.reports {
		if s := r.TooSlow; s != nil && (least == nil || s.RoundTripMicros < least.RoundTripMicros) {
			least = s
		}
	}
	if least == nil {
		return finding{}
	}
	millis := func(micros int64) int64 { return (time.Duration(micros) * time.Microsecond).Milliseconds() }
	return isFalse(v1.ReasonMembersTooSlow,
		fmt.Sprintf("The members answer after %d ms, and a coordinator could renew its lease only if they answered "+
			"within %d ms: increase spec.safety.leaseMillis, or check the network", millis(least.RoundTripMicros),
			millis(least.LimitMicros)))
}

func (e *evaluation) noEligibleMember() finding {
	var ineligible []string
	reasons := map[string]bool{}
	for i := range e.rows {
		row := &e.rows[i]
		if !isUp(row) || row.Priority == 0 {
			continue
		}
		report, ok := e.reportOf[row.Pod]
		if !ok || report.Eligible {
			return finding{}
		}
		ineligible = append(ineligible, row.Pod)
		reasons[report.Ineligible] = true
	}
	if len(ineligible) == 0 {
		return isFalse(v1.ReasonNoEligibleMember, "No member with a priority above 0 is up")
	}
	if text := e.reportOf[ineligible[0]].Ineligible; len(reasons) == 1 && text != "" {
		return isFalse(v1.ReasonNoEligibleMember,
			fmt.Sprintf("No live member is eligible (%s): %s", membership.Abbreviate(ineligible), text))
	}
	return isFalse(v1.ReasonNoEligibleMember,
		fmt.Sprintf("No live member is eligible: see status.processes for the %s of %s",
			membership.Plural(len(ineligible), "reason", "reasons"), membership.Abbreviate(ineligible)))
}
