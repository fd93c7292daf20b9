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
func (h *hearing) elected() (found finding, again time.Time) {
	if c := h.coordinator; c != nil {
		if len(h.reports) == 0 {
			return unknown(fmt.Sprintf("no agent can be heard; when one was, %s led in term %d", c.Pod, c.Term)), again
		}
		return good(v1.ReasonElected, fmt.Sprintf("%s leads in term %d", c.Pod, c.Term)), again
	}
	return h.vacant(first(h.noMembers, h.noReports, h.noMajority, h.nobodyStands,
		always(bad(v1.ReasonElecting, "an election is under way"))))
}

// vacant is a finding that nobody leads, with who was the last.
func (h *hearing) vacant(found finding) (finding, time.Time) {
	was := h.was(v1.CoordinatorElected)
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
	until, over := h.since(from)
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
func (h *hearing) noMembers() finding {
	if h.Problem == nil || h.List != nil {
		return finding{}
	}
	return bad(h.Problem.Reason, h.Problem.Message)
}

func (h *hearing) noReports() finding {
	switch {
	case len(h.reports) > 0:
		return finding{}
	case h.List == nil:
		return unknown("no agent has been heard yet: there is no list of members before")
	}
	return unknown("no agent that goes by the list of members is heard")
}

func (h *hearing) noMajority() finding {
	up, majority := h.up(), len(h.members)/2+1
	if !h.guarded() || up >= majority {
		return finding{}
	}
	return bad(v1.ReasonNoMajority, fmt.Sprintf("%d of %d members are up, and it takes %d to elect", up, len(h.members), majority))
}

func (h *hearing) nobodyStands() finding {
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
		return bad(v1.ReasonNoEligibleMember, "no member with a priority above 0 is up")
	}
	return bad(v1.ReasonNoEligibleMember, fmt.Sprintf("no live member stands: %s kept from it by %s",
		are(unwilling), "their applications, or by the operator: see processes"))
}

// are is a subject with its verb.
func are(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return membership.Abbreviate(names) + " are"
}
