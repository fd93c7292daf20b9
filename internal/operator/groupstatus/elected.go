package groupstatus

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/membership"
)

// elected is the condition CoordinatorElected, and when to look at it again.
func (h *evaluation) electedCondition() (found finding, again time.Time) {
	if c := h.coordinator; c != nil {
		if len(h.reports) == 0 {
			return isUnknown(fmt.Sprintf("no agent can be heard; when one was, %s led in term %d", c.Pod, c.Term)), again
		}
		return isTrue(v1.ReasonElected, fmt.Sprintf("%s leads in term %d", c.Pod, c.Term)), again
	}
	return h.withoutCoordinator(firstFinding(h.noMembers, h.noReports, h.noMajority, h.noEligibleMember,
		constant(isFalse(v1.ReasonElecting, "an election is under way"))))
}

// withoutCoordinator completes a finding that the group has no coordinator: it names the
// last coordinator, and reports its loss once an election should have ended.
func (h *evaluation) withoutCoordinator(found finding) (finding, time.Time) {
	last := h.last
	if last == nil {
		return found, time.Time{}
	}
	if last.LossReportedAt != nil {
		found.message += "; nobody has led since " + last.Pod
		return found, time.Time{}
	}
	if found.status != metav1.ConditionFalse {
		found.message += "; the last was " + last.Pod
		return found, time.Time{}
	}
	from := h.Now
	if was := h.previousCondition(v1.CoordinatorElected); h.Group.Status.Coordinator == nil && was != nil && was.Status == metav1.ConditionFalse {
		from = was.LastTransitionTime.Time
	}
	until, over := h.suspicionTimeoutAfter(from)
	if over {
		last.LossReportedAt = new(metav1.NewTime(h.Now.UTC().Truncate(time.Second)))
		found.message += "; nobody has led since " + last.Pod
		return found, time.Time{}
	}
	found.message += "; the last was " + last.Pod
	return found, until
}

// lastCoordinator is the coordinator before, if there is none now.
func (h *evaluation) lastCoordinator() *v1.LastCoordinator {
	status := &h.Group.Status
	switch {
	case h.coordinator != nil:
		return nil
	case status.Coordinator != nil:
		return &v1.LastCoordinator{Pod: status.Coordinator.Pod}
	}
	return status.LastCoordinator.DeepCopy()
}

// noMembers is what keeps the list from being the wanted one, while there is none.
func (h *evaluation) noMembers() finding {
	if h.Problem == nil || h.List != nil {
		return finding{}
	}
	return isFalse(h.Problem.Reason, h.Problem.Message)
}

func (h *evaluation) noReports() finding {
	switch {
	case len(h.reports) > 0:
		return finding{}
	case h.List == nil:
		return isUnknown("no agent has been heard yet: there is no list of members before")
	}
	return isUnknown("no agent that goes by the list of members is heard")
}

func (h *evaluation) noMajority() finding {
	up, majority := h.countUp(), len(h.members)/2+1
	if !h.needsMajority() || up >= majority {
		return finding{}
	}
	return isFalse(v1.ReasonNoMajority, fmt.Sprintf("%d of %d members are up, and it takes %d to elect", up, len(h.members), majority))
}

func (h *evaluation) noEligibleMember() finding {
	var unwilling []string
	for i := range h.rows {
		row := &h.rows[i]
		if !isUp(row) || row.Priority == 0 {
			continue
		}
		own, speaks := h.reportOf[row.Pod]
		if !speaks || own.Eligible {
			return finding{}
		}
		unwilling = append(unwilling, row.Pod)
	}
	if len(unwilling) == 0 {
		return isFalse(v1.ReasonNoEligibleMember, "no member with a priority above 0 is up")
	}
	return isFalse(v1.ReasonNoEligibleMember, fmt.Sprintf("no live member stands: %s kept from it by %s",
		areVerb(unwilling), "their applications, or by the operator: see processes"))
}

// are is a subject with its verb.
func areVerb(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return membership.Abbreviate(names) + " are"
}
