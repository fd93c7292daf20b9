package groupstatus

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/membership"
)

// A condition without a coordinator ends in who was the last. That is all that is
// remembered: the next coordinator's event names it; and once nobody has led for
// longer than an election takes, an event tells that, and the condition says so.
const (
	last   = "; the last was "
	missed = "; nobody has led since "
)

// before is who was the last, according to a condition, and whether it has been
// told that nobody has led since.
func before(was *metav1.Condition) (pod string, told bool) {
	if was == nil || was.Status == metav1.ConditionTrue {
		return "", false
	}
	if i := strings.LastIndex(was.Message, missed); i >= 0 {
		return was.Message[i+len(missed):], true
	}
	if i := strings.LastIndex(was.Message, last); i >= 0 {
		return was.Message[i+len(last):], false
	}
	return "", false
}

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

// vacant is a finding that nobody leads, with who was the last.
func (h *evaluation) withoutCoordinator(found finding) (finding, time.Time) {
	was := h.previousCondition(v1.CoordinatorElected)
	pod, told := before(was)
	if now := h.Group.Status.Coordinator; now != nil {
		pod, told, was = now.Pod, false, nil
	}
	if pod == "" {
		return found, time.Time{}
	}
	from := h.Now
	if was != nil && was.Status == metav1.ConditionFalse {
		from = was.LastTransitionTime.Time
	}
	until, over := h.suspicionTimeoutAfter(from)
	switch {
	case told, over && found.status == metav1.ConditionFalse:
		found.message += missed + pod
		return found, time.Time{}
	case found.status != metav1.ConditionFalse:
		until = time.Time{}
	}
	found.message += last + pod
	return found, until
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
