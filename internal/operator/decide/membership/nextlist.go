package membership

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// nextList returns the member list for the status: the present one, or its successor. The
// Problem is why that is not the wanted list.
func nextList(f *Facts, ahead []string) (*v1.MemberList, *Problem) {
	current := f.Group.Status.Protocol.MemberList
	if len(ahead) > 0 {
		return current, f.statusBehindProblem(ahead)
	}
	wanted, problem := f.wantedMembers(current)
	if f.waitsForEarlierGroup() && (current != nil || len(wanted) > 0) {
		if len(f.InEarlierGroup) == 0 {
			return current, problem
		}
		return current, f.earlierGroupProblem()
	}
	next := f.next(current, wanted)
	if current != nil && next.Version > current.Version {
		if waiting := f.majorityProblem(current, wanted); waiting != nil {
			return f.next(current, nil), waiting
		}
	}
	return next, problem
}

// waitsForEarlierGroup reports whether no list may be published yet, because agents are in an
// earlier group of the name, or may be: an operator that starts is connected to none. A group has
// begun when an agent reports it. The status may have a list and a document all the same, from a backup.
func (f *Facts) waitsForEarlierGroup() bool {
	return len(f.Versions) == 0 && (len(f.InEarlierGroup) > 0 || f.ContactPending) &&
		f.Group.Spec.Safety.Mode != v1.Available
}

// next returns the next step after a list: see package memberlist.
func (f *Facts) next(current *v1.MemberList, wanted []v1.Member) *v1.MemberList {
	facts := memberlist.Facts[string]{
		Wanted:    toMembers(wanted, nil),
		Lease:     int64(longestLease(f.Group)),
		Draining:  f.coordinatorDrains(current),
		Published: f.Published != nil,
		Identity:  func(pod string) string { return f.Identities[pod] },
		Adopted:   func(pod string) bool { return f.Adopted[pod] },
		Missing:   func(pod string) bool { return f.Missing[pod] },
		Seconds:   int64(control.VersionAt(f.Now)),
		Term:      max(f.Group.Status.Term, f.Term),
	}
	return statusList(facts.Next(toMemberList(current)))
}

// coordinatorDrains reports whether the list in force has removed or demoted the coordinator, which has not handed over
// yet. That takes the drain timeout at most: then its members replace it. The status keeps a coordinator while too
// few agents report, so this counts only while a majority and the agent of the coordinator are connected.
func (f *Facts) coordinatorDrains(current *v1.MemberList) bool {
	coordinator := f.Group.Status.Coordinator
	if current == nil || coordinator == nil || f.MajorityLost {
		return false
	}
	mayLead := func(m v1.Member) bool { return m.Pod == coordinator.Pod && m.Priority > 0 }
	connected := func(pod *corev1.Pod) bool { return pod.Name == coordinator.Pod && f.Connected[pod.UID] }
	return !slices.ContainsFunc(current.Members, mayLead) && slices.ContainsFunc(f.Pods, connected)
}

// earlierGroupProblem returns the Problem of a group that must not begin yet: an agent
// in the earlier group may be its coordinator, and would not learn of the new group.
func (f *Facts) earlierGroupProblem() *Problem {
	agents, have, pods := "agents", "have", "these pods"
	if len(f.InEarlierGroup) == 1 {
		agents, have, pods = "agent", "has", "the pod"
	}
	return &Problem{v1.ReasonEarlierGroup, fmt.Sprintf(
		"The %s of %s %s not left an earlier group of this name yet: this group begins after that; "+
			"if the problem persists, delete %s", agents, Abbreviate(f.InEarlierGroup), have, pods)}
}

// agentsAhead returns the pods whose agents use a newer list than the newest known one,
// unless a majority of the newest known list contradicts them.
//
// For example, the status was restored from a backup with list 6 of a, b and c, and the agents use list 7. The operator
// doesn't know the members of list 7, so it must not publish another list.
//
// If only a reports list 7, and b and c are connected and report list 6, then list 7 has not been adopted by a majority
// of list 6, so it can't have a coordinator of its own. The operator continues with list 6: a single agent must not
// block the group. Nor must one that reports a list of a group that has none, unless a majority of those that are
// connected does: then the status was lost.
func (f *Facts) agentsAhead(newest *v1.MemberList) []string {
	known := int64(0)
	if newest != nil {
		known = newest.Version
	}
	var ahead []string
	for pod, version := range f.Versions {
		if version > known {
			ahead = append(ahead, pod)
		}
	}
	if len(ahead) > 0 &&
		(newest != nil && f.majorityUses(newest) || newest == nil && len(ahead) <= len(f.connectedNames())/2) {
		return nil
	}
	return ahead
}

// connectedNames returns the names of the pods whose agents are connected.
func (f *Facts) connectedNames() map[string]bool {
	names := make(map[string]bool, len(f.Pods))
	for _, pod := range f.Pods {
		if f.Connected[pod.UID] {
			names[pod.Name] = true
		}
	}
	return names
}

// majorityUses reports whether a majority of a list is connected, and reports this list or an older one.
func (f *Facts) majorityUses(list *v1.MemberList) bool {
	connected, count := f.connectedNames(), 0
	for _, m := range list.Members {
		if version, reported := f.Versions[m.Pod]; reported && connected[m.Pod] && version <= list.Version {
			count++
		}
	}
	return count > len(list.Members)/2
}

// statusBehindProblem returns the Problem of a group whose agents use a newer list than the status has.
func (f *Facts) statusBehindProblem(ahead []string) *Problem {
	use := "use"
	if len(ahead) == 1 {
		use = "uses"
	}
	return &Problem{v1.ReasonStatusBehind, fmt.Sprintf(
		"%s %s a newer member list than the status, which may have been restored from a backup: "+
			"the list cannot change; delete the group, and create it again", Abbreviate(ahead), use)}
}
