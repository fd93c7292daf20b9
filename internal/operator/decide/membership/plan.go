package membership

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Waits is what has lasted long enough by the time of the facts, and what is already published.
type Waits struct {
	// Adopted has the members of the previous list, by pod, that have reported the list in force for AdoptionWait.
	Adopted map[string]bool
	// Missing has the members of the list and of the previous one whose pods have been Gone for MissingPodGrace. The wait
	// starts again when another version is published. For example, c has no pod when the operator publishes list 8. Just
	// before that, a new pod c has started with list 7, and the operator doesn't know it yet. If the earlier wait counted,
	// c would count as departed while it votes.
	Missing map[string]bool
	// Retired has the members of the previous list whose processes have given up their identities. The wait would be for
	// nothing.
	Retired map[string]bool
	// MajorityLost means that no majority of the members of the list in the status has been connected for MajorityGrace.
	MajorityLost bool
	// WitnessLost means that a witness in the list hasn't been connected for WitnessGrace, or that one is lacking.
	WitnessLost bool
	// FirstListComplete means that the first list of a selector does not wait for further agents.
	FirstListComplete bool
	// Published is the document that was written together with the list in the status, or nil if there is none.
	Published *v1.PublishedDocument
	// Revision is the highest known revision of a group of this name.
	Revision int64
}

// Problem is the reason why there is no list, or not the wanted one.
type Problem struct {
	Reason  v1.Reason
	Message string
}

// Plan is what should exist.
type Plan struct {
	// List is the wanted status.memberList, or nil if there can be none yet.
	List    *v1.MemberList
	Problem *Problem
	// StatusBehind means that agents use a newer list than the newest known one. Then
	// the next list is unknown, and so are the pods that aren't members.
	StatusBehind bool
	// Document is nil without a list, in case of StatusBehind, and while the group waits for
	// agents to leave an earlier one. Encoded is what agents get, and Published identifies it.
	Document  *control.Document
	Encoded   []byte
	Published v1.PublishedDocument
	// NeedsWitnesses means that the plan isn't complete before the facts have the witnesses.
	NeedsWitnesses bool
	// Hold has the pods that need the finalizer of the group before the document is
	// published, and Release those from which it has to be removed.
	Hold, Release []*corev1.Pod
	// RequeueAt is the time of the next plan if no fact changes before; zero if none is needed.
	RequeueAt time.Time
	// Service is nil if none is wanted, or it can't be the group's. ServiceProblem says why that, or its EndpointSlice,
	// can't be written; nil if it can.
	Service        *corev1.Service
	ServiceProblem *Problem
	// WritesEndpointSlice means that the EndpointSlice is the group's, or will be. KeptService is the name of the only
	// Service that the group may own, or "".
	WritesEndpointSlice bool
	KeptService         string
}

// planner makes one plan.
type planner struct {
	*facts.Facts
	Waits

	needsWitnesses bool
}

// MakePlan plans the next step for a group.
func MakePlan(known *facts.Facts, waits Waits) Plan {
	f := planner{Facts: known, Waits: waits}
	var p Plan
	ahead := f.agentsAhead(f.MemberList())
	p.StatusBehind = len(ahead) > 0
	p.List, p.Problem = f.nextList(ahead)
	p.NeedsWitnesses = f.needsWitnesses
	p.Hold, p.Release = f.holds()
	unknown, next := f.unknownStops()
	p.RequeueAt = next
	p.Problem = cmp.Or(p.Problem, f.stopProblem(unknown))
	if p.List != nil && !p.StatusBehind && !f.waitsForEarlierGroup() {
		p.publishDocument(&f, p.List)
	}
	p.planService(&f)
	return p
}

// AdoptionWait returns the time for which a member must have reported a list before it counts as having adopted it. For
// example, b grants the office to c under list 7, and then adopts list 8, of which c isn't a member. The grant remains
// valid for a lease. So b counts only when its grants under list 7 have expired, on any clock.
//
// In Available mode there are no grants.
func AdoptionWait(group *v1.ElectionGroup) time.Duration {
	if group.Spec.Safety.Mode == v1.Available {
		return 0
	}
	lease := longestLease(group)
	if list := group.Status.Protocol.MemberList; list != nil {
		lease = cmp.Or(listOf(list).LongestLease(), lease) // The schema permits a list without a lease.
	}
	return memberlist.AdoptionWait(time.Duration(lease) * time.Millisecond)
}

// MajorityGrace is the time without a connected majority of the present members after
// which the next list is published without waiting for its own majority.
//
// For example, b and c of the members a, b and c are lost with their nodes, and the user replaces them with d and e.
// The group has no coordinator that waiting could protect, and the new list may be the repair.
//
// An operator that starts, or that was disconnected for a short time, connects to all agents in less than that.
const MajorityGrace = time.Minute

// minMissingPodGrace is the minimum of MissingPodGrace while no list is being adopted. A
// StatefulSet recreates a pod within that time.
const minMissingPodGrace = time.Second

// MissingPodGrace returns the time for which a member must have had no pod before it
// counts as departed, while a list is being adopted, or before it is removed from the list.
func MissingPodGrace(group *v1.ElectionGroup) time.Duration {
	if list := group.Status.Protocol.MemberList; list != nil && list.State == v1.ListAdopting {
		return AdoptionWait(group)
	}
	return max(AdoptionWait(group), minMissingPodGrace)
}
