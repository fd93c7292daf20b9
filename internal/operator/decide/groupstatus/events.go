package groupstatus

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
)

// Event is a change that the operator records as a Kubernetes Event.
type Event struct {
	Type, Reason, Note string
	// Key distinguishes events of the same reason. It does not depend on which operator
	// detects the change, nor on the status before.
	Key string
}

// The reasons of events.
const (
	eventElected      = "CoordinatorElected"
	eventLost         = "CoordinatorLost"
	eventDisagreement = "Disagreement"
)

// Events returns the events of a change from one status to the next.
func Events(old, next *v1.ElectionGroupStatus) []Event {
	var all []Event
	term := fmt.Sprint(next.Term)
	if next.Coordinator != nil && !facts.SameTenure(old.Coordinator, next.Coordinator) {
		all = append(all,
			Event{corev1.EventTypeNormal, eventElected, v1.DescribeElection(next.History), term})
	}
	available := meta.FindStatusCondition(next.Conditions, string(v1.ConditionAvailable))
	if available == nil {
		return all
	}
	if next.Protocol.LossReportedAt != nil && old.Protocol.LossReportedAt == nil {
		all = append(all, Event{corev1.EventTypeWarning, eventLost, available.Message, term})
	}
	ready := meta.FindStatusCondition(next.Conditions, string(v1.ConditionReady))
	if isDisagreement(ready) && !isDisagreement(meta.FindStatusCondition(old.Conditions, string(v1.ConditionReady))) {
		at := ready.LastTransitionTime.Unix()
		all = append(all, Event{corev1.EventTypeWarning, eventDisagreement, ready.Message, fmt.Sprint(at)})
	}
	return all
}

// isDisagreement reports whether agents disagree, other than about settings, which some apply later.
func isDisagreement(ready *metav1.Condition) bool {
	return ready != nil && ready.Reason != string(v1.ReasonSettingsDiffer) &&
		slices.Contains(disagreements, v1.Reason(ready.Reason))
}
