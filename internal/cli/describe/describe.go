// Package describe says in words what the status of a group means: to people, in
// a terminal. Programs read the status itself.
//
// It knows nothing but the object and what time it is. What the status doesn't
// say, it doesn't guess: who is next, say, is who is next as far as the agents
// have told the operator.
package describe

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// order is that in which conditions are told.
var order = []v1.ConditionType{v1.Ready, v1.CoordinatorElected, v1.Agreed, v1.AgentsConnected}

// condition is nil if the operator hasn't written it yet.
func condition(g *v1.ElectionGroup, t v1.ConditionType) *metav1.Condition {
	return meta.FindStatusCondition(g.Status.Conditions, string(t))
}

// concerns are the conditions to tell: those that aren't good, and what is good
// only until the first failure. Ready isn't told where it repeats another one.
func concerns(g *v1.ElectionGroup) []metav1.Condition {
	var told []metav1.Condition
	for _, t := range order {
		c := condition(g, t)
		if c == nil || c.Status == metav1.ConditionTrue && v1.Reason(c.Reason) != v1.ReasonNoFailover {
			continue
		}
		if t != v1.Ready || !repeats(g, c) {
			told = append(told, *c)
		}
	}
	return told
}

func repeats(g *v1.ElectionGroup, ready *metav1.Condition) bool {
	reason := v1.Reason(ready.Reason)
	if reason == v1.ReasonNoCoordinator && bad(g, v1.CoordinatorElected) || reason == v1.ReasonDisagreement && bad(g, v1.Agreed) {
		return true
	}
	other := condition(g, v1.CoordinatorElected)
	return other != nil && other.Reason == ready.Reason
}

func bad(g *v1.ElectionGroup, t v1.ConditionType) bool {
	c := condition(g, t)
	return c != nil && c.Status != metav1.ConditionTrue
}

// unseen says that the status isn't about the spec as it is, or "".
func unseen(g *v1.ElectionGroup) string {
	switch {
	case g.Status.ObservedGeneration == 0 && len(g.Status.Conditions) == 0:
		return "The operator hasn't looked at this group yet. Does it run? kubectl get pods -n " + operatorNamespace
	case g.Status.ObservedGeneration < g.Generation:
		return "The operator hasn't seen the last change of the group yet: the status is about the group before it."
	}
	return ""
}

// operatorNamespace is where config/ puts the operator.
const operatorNamespace = "conclave-system"

// in is the flag that leads kubectl to a group's namespace.
func in(g *v1.ElectionGroup) string { return "-n " + g.Namespace }

// ago is how long something has lasted, in the way of kubectl.
func ago(since, now time.Time) string { return duration.HumanDuration(now.Sub(since)) }

// counted is a number of members.
func counted(n int) string {
	if n == 1 {
		return "1 member"
	}
	return fmt.Sprintf("%d members", n)
}

// sentence ends in a full stop.
func sentence(text string) string {
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}
