// Package facts has what the operator knows about a group when it decides: what it has read, and when.
package facts

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Facts is what has been read about a group. Decisions don't change it.
type Facts struct {
	// Now is the time after everything else has been read: a wait that begins now begins after the observation that it is
	// about.
	Now   time.Time
	Group *v1.ElectionGroup
	// LeaderGrace is how late the leader of the operator's replicas may be before this standby writes instead; 0 if this
	// replica is the leader.
	LeaderGrace time.Duration
	// Pods has pods by name: members, selected pods, those with the group's role label, and those whose agents report it.
	// Nodes has their nodes by name; some may be missing.
	Pods  map[string]*corev1.Pod
	Nodes map[string]*corev1.Node
	// Agents has the agents of these pods, by the names of the pods.
	Agents map[string]Agent
	// GroupsMax is set if other groups of the namespace are as many as the operator serves there.
	GroupsMax int
	// Preferred is the member that gets the highest priority among those that priorityFrom prefers as much, or "".
	Preferred string

	// ServicesForbidden means that the operator may not write Services and EndpointSlices, and ServicesPermitted that it
	// believed it might before this reconcile.
	ServicesForbidden, ServicesPermitted bool
	// Service and EndpointSlice are the existing objects of the wanted names, whatever their owner is; nil if there is
	// none.
	Service       *corev1.Service
	EndpointSlice *discoveryv1.EndpointSlice

	// Errors are what the API server has refused.
	Errors Errors

	// What follows was read or done because a step asked for it.

	// Confirmed means that the API server has this group, with this spec.
	Confirmed bool
	// Fresh has the names of pods that were read from the API server.
	Fresh map[string]bool
	// Witnesses are pods of the operator that may become members, as they would be in this namespace, and WitnessGroups
	// how many groups have them; nil if they haven't been read. WitnessLimit means that the namespace has too many groups
	// with a witness.
	Witnesses     []*corev1.Pod
	WitnessGroups map[string]int
	WitnessLimit  bool
	// HoldTried means that the operator has tried to write finalizers, and HoldFailed that it couldn't.
	HoldTried, HoldFailed bool
}

// New returns facts about a group without pods.
func New(group *v1.ElectionGroup) *Facts {
	return &Facts{
		Group: group, Pods: map[string]*corev1.Pod{}, Nodes: map[string]*corev1.Node{}, Agents: map[string]Agent{},
		Fresh: map[string]bool{},
	}
}

// Errors are what the API server has refused; "" if nothing.
type Errors struct {
	// Publish is about what must precede a document, Routing about the Service, its EndpointSlice or a role label, and
	// ServicesDenied says that Routing is about a permission for Services.
	Publish, Routing string
	ServicesDenied   bool
	// Status is why the API server refused the status of this reconcile as invalid.
	Status string
}

// Agent is the state of a pod's agent. If it has neither a connection nor a Problem, the operator has not contacted the
// agent yet. The same applies to a pod without an entry in Facts.Agents.
type Agent struct {
	// Connected means that the stream of the agent is open and up to date.
	Connected bool
	// NotInGroup means that the agent cannot participate in the group, because its pod did not list the group when it was
	// created.
	NotInGroup bool
	// Problem is the reason why the agent is not connected.
	Problem string
	// Version is that of the agent, while it is connected, and Identity that of its state directory, if it is known.
	Version, Identity string
	// Required is the lowest revision that the agent accepts, if it has refused a document because of that.
	Required int64
	// Report is the agent's last report for a group of this name, or nil.
	Report *control.Report
	// AdoptedAt is since when it has reported this version of the list.
	AdoptedAt time.Time
}

// NoCertificate begins the Problem of an agent that got no certificate from the operator.
const NoCertificate = "The agent has no certificate: "

// Leads reports whether this replica of the operator is the leader.
func (f *Facts) Leads() bool { return f.LeaderGrace == 0 }

// Accepts reports whether the agent of a pod is connected, and can participate in the group.
func (f *Facts) Accepts(pod string) bool { return f.Agents[pod].Connected && !f.Agents[pod].NotInGroup }

// Report returns what the agent of a pod last reported about this group, not about an earlier one of its name, or nil.
func (f *Facts) Report(pod string) *control.Report {
	if report := f.Agents[pod].Report; report != nil && report.UID == string(f.Group.UID) {
		return report
	}
	return nil
}

// MemberList returns that in the status, or nil.
func (f *Facts) MemberList() *v1.MemberList { return f.Group.Status.Protocol.MemberList }

// Majority reports whether something is true of a majority of the members of a list.
func Majority(list *v1.MemberList, is func(pod string) bool) bool {
	count := 0
	for _, m := range list.Members {
		if is(m.Pod) {
			count++
		}
	}
	return count > len(list.Members)/2
}

// Earliest returns the earlier of two times, of which the zero time is none.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// SameTenure reports whether two statuses have the same coordinator in the same term, or none.
func SameTenure(a, b *v1.Coordinator) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Pod == b.Pod && a.Term == b.Term)
}
