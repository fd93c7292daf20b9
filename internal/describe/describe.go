// Package describe describes the status of a group to users in a terminal. Programs should read the status itself.
//
// Its only input is the object and the current time. It adds nothing that the status does not contain: the next
// coordinator, for example, is the next one according to what the agents have reported to the operator.
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

// conditionTypes has the types of conditions in the order in which they are shown. Ready
// and Degraded have the problems of Progressing, too.
var conditionTypes = []v1.ConditionType{
	v1.ConditionReady, v1.ConditionAvailable, v1.ConditionDegraded, v1.ConditionAgentsConnected,
}

// condition returns a condition, or nil if the operator has not set it yet.
func condition(g *v1.ElectionGroup, t v1.ConditionType) *metav1.Condition {
	return meta.FindStatusCondition(g.Status.Conditions, string(t))
}

// notableConditions returns the conditions to show: those that have a problem, and Ready
// if the group is healthy only until the first failure.
func notableConditions(g *v1.ElectionGroup) []metav1.Condition {
	var causes, notable []metav1.Condition
	for _, t := range conditionTypes {
		switch c := condition(g, t); {
		case c == nil || !isNotable(g, c) || follows(g, c):
		case isCause(c):
			causes = append(causes, *c)
		default:
			notable = append(notable, *c)
		}
	}
	return append(causes, notable...)
}

// isNotable reports whether to show a condition. It is false if another one says the same.
func isNotable(g *v1.ElectionGroup, c *metav1.Condition) bool {
	ready := condition(g, v1.ConditionReady)
	repeated := ready != nil && ready.Status != metav1.ConditionTrue && ready.Reason == c.Reason
	switch v1.ConditionType(c.Type) {
	case v1.ConditionReady:
		return c.Status != metav1.ConditionTrue || v1.Reason(c.Reason) == v1.ReasonNoFailover
	case v1.ConditionDegraded:
		return c.Status == metav1.ConditionTrue && !repeated
	default:
		return c.Status != metav1.ConditionTrue && !repeated
	}
}

// isCause reports whether other problems follow from this one, so that it comes first.
func isCause(c *metav1.Condition) bool {
	return c.Reason == string(v1.ReasonPodsMissing) || c.Reason == string(v1.ReasonNoAgent)
}

// follows reports whether a problem follows from another one that is shown: without pods or agents,
// nothing is known about a coordinator.
func follows(g *v1.ElectionGroup, c *metav1.Condition) bool {
	if connected := condition(g, v1.ConditionAgentsConnected); connected == nil || !isCause(connected) {
		return false
	}
	noneUp := g.Status.ReadyMembers != nil && *g.Status.ReadyMembers == 0
	return c.Reason == string(v1.ReasonNoReports) || c.Reason == string(v1.ReasonMembersDown) && noneUp
}

// staleNotice returns a notice if the status does not reflect the current spec, or "".
func staleNotice(g *v1.ElectionGroup) string {
	switch {
	case g.Status.ObservedGeneration == 0 && len(g.Status.Conditions) == 0:
		return "The operator has not reconciled this group yet. Check that it is running: " + operatorPods
	case g.Status.ObservedGeneration < g.Generation:
		return "The operator has not reconciled the last change of the group yet: this status reflects the spec before it."
	}
	return ""
}

// operatorPods is the command that lists the pods of the operators in the cluster, in whatever namespaces
// they are installed.
const operatorPods = "kubectl get pods -A -l app.kubernetes.io/name=conclave,app.kubernetes.io/component=manager"

// namespaceFlag returns kubectl's flag for the namespace of a group.
func namespaceFlag(g *v1.ElectionGroup) string { return "-n " + g.Namespace }

// age formats how long something has lasted, as kubectl does.
func age(since, now time.Time) string { return duration.HumanDuration(now.Sub(since)) }

// Count formats a number of things.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// sentence returns the text with a full stop. A command at the end gets none, because users copy it.
func sentence(text string) string {
	last := text[strings.LastIndex(text, ". ")+1:]
	if text == "" || strings.HasSuffix(text, ".") || strings.Contains(last, ": kubectl ") {
		return text
	}
	return text + "."
}

// Problem is a condition that indicates a problem, and how to resolve it.
type Problem struct {
	Type    string `json:"type,omitempty"`
	Status  string `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"`
	// Runbook is the address of the runbook of the alert about it, if there is one.
	Runbook string    `json:"runbook,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// lines returns the problem and the advice. since is for how long it has lasted, or "".
func (p *Problem) lines(since string) []string {
	if p.Type == "" {
		return []string{p.Message}
	}
	lines := []string{fmt.Sprintf("%s is %s (%s)%s: %s", p.Type, p.Status, p.Reason, since, p.Message)}
	if p.Advice != "" {
		lines = append(lines, "  "+p.Advice)
	}
	return lines
}

// Problems returns the problems of a group. If the status is out of date, that comes first, without a type.
func Problems(g *v1.ElectionGroup) []Problem {
	var all []Problem
	if text := staleNotice(g); text != "" {
		all = append(all, Problem{Message: text})
	}
	for _, c := range notableConditions(g) {
		all = append(all, Problem{
			Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: sentence(c.Message),
			Advice: advice(g, v1.Reason(c.Reason)), Runbook: runbook(v1.Reason(c.Reason)), Since: c.LastTransitionTime.Time,
		})
	}
	return all
}
