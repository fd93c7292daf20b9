// Package rules finds what is wrong with an installation of Conclave and with its groups. It is
// pure: the caller gathers the facts.
package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Facts are what the caller could find out. For each fact that it couldn't, Unknown has the reason.
type Facts struct {
	// Operators are those of the cluster: one, unless the installation is wrong.
	Operators []Operator
	// Webhook is nil if there is none.
	Webhook *admissionregistrationv1.MutatingWebhookConfiguration
	// Namespace is the one that is checked, or "" for all.
	Namespace string
	// Groups are all groups of the namespaces. If Group is set, only the one with this name is checked.
	Groups []v1.ElectionGroup
	Group  string
	// OnlyGroup is set if Groups has only Group, because the user may not list others.
	OnlyGroup bool
	// Pods are those that are checked.
	Pods []corev1.Pod
	// Policies are those of the namespaces of the pods, and of the operators as far as the user may read them.
	Policies []networkingv1.NetworkPolicy
	Unknown  map[Fact]string
	Now      time.Time
}

// Fact is a kind of facts.
type Fact string

// The kinds of facts.
const (
	Operators Fact = "the operator"
	Webhook   Fact = "the webhook configuration"
	Groups    Fact = "the groups"
	Pods      Fact = "the pods"
	Policies  Fact = "the network policies"
)

// Operator is an installed operator.
type Operator struct {
	Namespace, Image, AgentImage string
	Wanted, Available            int32
	// Template is that of its pods.
	Template corev1.PodTemplateSpec
	// Lacks has permissions that it needs and doesn't have.
	Lacks []string
}

// Level is the result of a check.
type Level string

// The levels, the worst one first.
const (
	Problem Level = "problem"
	Warning Level = "warning"
	Unknown Level = "unknown"
	OK      Level = "ok"
)

// Finding is the result of a check.
type Finding struct {
	Level Level `json:"level"`
	// Object is what the finding is about, such as "pod bank/ledger-0".
	Object  string `json:"object"`
	Message string `json:"message"`
	// Advice is what to do.
	Advice string `json:"advice,omitempty"`
}

// Run returns the findings, the worst ones first.
func Run(f *Facts) []Finding {
	var all, unknown []Finding
	for _, check := range []struct {
		fact Fact
		run  func(*Facts) []Finding
	}{
		{Operators, checkOperator},
		{Webhook, checkWebhook},
		{Groups, checkGroups},
		{Pods, checkPods},
		{Policies, checkPolicies},
	} {
		if reason := f.Unknown[check.fact]; reason != "" {
			unknown = append(unknown, Finding{Unknown, string(check.fact), reason, ""})
			continue
		}
		all = append(all, check.run(f)...)
	}
	all = append(unknown, summarize(all)...)
	order := []Level{Problem, Warning, Unknown, OK}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Level), slices.Index(order, b.Level))
	})
	return all
}

// summarize merges findings that differ only by their objects: all pods of a Deployment have the same labels.
func summarize(all []Finding) []Finding {
	type key struct {
		level           Level
		message, advice string
	}
	first, more := map[key]int{}, map[key]int{}
	var merged []Finding
	for _, f := range all {
		k := key{f.Level, f.Message, f.Advice}
		if _, known := first[k]; known {
			more[k]++
			continue
		}
		first[k] = len(merged)
		merged = append(merged, f)
	}
	for k, n := range more {
		merged[first[k]].Object += fmt.Sprintf(" and %d more", n)
	}
	return merged
}
