package groupstatus

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// electedCondition returns the condition CoordinatorElected, and the time of its next
// evaluation.
func (e *evaluation) electedCondition() (found finding, requeueAt time.Time) {
	if c := e.coordinator; c != nil {
		if len(e.reports) == 0 {
			return isUnknown(fmt.Sprintf("No agent is connected; the last report named coordinator %s in term %d", c.Pod, c.Term)), requeueAt
		}
		return isTrue(v1.ReasonElected, fmt.Sprintf("%s is the coordinator in term %d", c.Pod, c.Term)), requeueAt
	}
	return e.withLastCoordinator(firstFinding(e.noMembers, e.noReports, e.noMajority, e.noEligibleMember, e.membersTooSlow,
		constant(isFalse(v1.ReasonElecting, "An election is in progress"))))
}

// lastCoordinator returns the most recent coordinator if there is none now.
func (e *evaluation) lastCoordinator() *v1.LastCoordinator {
	status := &e.Group.Status
	switch {
	case e.coordinator != nil:
		return nil
	case status.Coordinator != nil:
		return &v1.LastCoordinator{Pod: status.Coordinator.Pod}
	}
	return status.LastCoordinator.DeepCopy()
}

// withLastCoordinator adds the last coordinator to a finding that there is none. If there
// has been none for the suspicion timeout, it records that the loss is reported: Events
// then returns an event. Otherwise it returns the time at which that is due. A finding
// of status Unknown does not count, because there may be a coordinator.
func (e *evaluation) withLastCoordinator(found finding) (_ finding, requeueAt time.Time) {
	if e.last == nil {
		return found, requeueAt
	}
	if e.last.LossReportedAt == nil && found.status == metav1.ConditionFalse {
		lostAt := e.Now
		old := e.oldCondition(v1.ConditionCoordinatorElected)
		if e.Group.Status.Coordinator == nil && old != nil && old.Status == metav1.ConditionFalse {
			lostAt = old.LastTransitionTime.Time
		}
		until, over := e.deadline(lostAt, e.Group.Spec.Timing.SuspicionTimeout())
		if over {
			e.last.LossReportedAt = new(metav1.NewTime(e.Now.UTC().Truncate(time.Second)))
		} else {
			requeueAt = until
		}
	}
	if e.last.LossReportedAt != nil {
		found.message += "; there has been no coordinator since " + e.last.Pod
	} else {
		found.message += "; the last coordinator was " + e.last.Pod
	}
	return found, requeueAt
}

// noMembers returns the problem with the members if there is no list yet.
func (e *evaluation) noMembers() finding {
	if e.Problem == nil || e.List != nil {
		return finding{}
	}
	return isFalse(e.Problem.Reason, e.Problem.Message)
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
	up, majority := e.countUp(), len(e.members)/2+1
	if !e.needsMajority() || up >= majority {
		return finding{}
	}
	return isFalse(v1.ReasonNoMajority, fmt.Sprintf("%d of %d members %s up, and a coordinator needs %d",
		up, len(e.members), plural(up, "is", "are"), majority))
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
	return isFalse(v1.ReasonMembersTooSlow, fmt.Sprintf("The members answer after %d ms, and a coordinator could renew its lease only if they answered "+
		"within %d ms: increase spec.safety.leaseMillis, or check the network", millis(least.RoundTripMicros), millis(least.LimitMicros)))
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
		return isFalse(v1.ReasonNoEligibleMember, fmt.Sprintf("No live member is eligible (%s): %s", membership.Abbreviate(ineligible), text))
	}
	return isFalse(v1.ReasonNoEligibleMember, fmt.Sprintf("No live member is eligible: see status.processes for the %s of %s",
		plural(len(ineligible), "reason", "reasons"), membership.Abbreviate(ineligible)))
}
