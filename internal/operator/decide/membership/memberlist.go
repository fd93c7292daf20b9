package membership

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// nextList returns the member list for the status: the newest known list, or its
// successor. The Problem is why that is not the wanted list.
func nextList(f *Facts, current *v1.MemberList, ahead []string) (*v1.MemberList, *Problem) {
	if f.configMapConflict() {
		// A list that cannot be published can neither begin nor be adopted.
		return f.Group.Status.MemberList, &Problem{v1.ReasonConfigMapConflict, fmt.Sprintf(
			"ConfigMap %s, which agents mount, has another owner: delete it, or recreate it under another name", f.ConfigMap.Name)}
	}
	if len(ahead) > 0 {
		return f.Group.Status.MemberList, f.statusBehindProblem(ahead)
	}
	wanted, problem := f.wantedMembers(current)
	if f.waitsForEarlierGroup() && (current != nil || len(wanted) > 0) {
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
// earlier group of the name. The status may have a list all the same, from a backup.
func (f *Facts) waitsForEarlierGroup() bool {
	begun := f.publishedList() != nil || len(f.Versions) > 0
	return !begun && len(f.InEarlierGroup) > 0 && f.Group.Spec.Safety.Mode != v1.Available
}

// next returns the next step after a list: see package memberlist.
func (f *Facts) next(current *v1.MemberList, wanted []v1.Member) *v1.MemberList {
	published := f.publishedList()
	facts := memberlist.Facts[string]{
		Wanted:    toMembers(wanted),
		Lease:     int64(specLease(f.Group)),
		Draining:  f.coordinatorDrains(current),
		Published: published != nil && current != nil && published.Version == current.Version,
		Adopted:   func(pod string) bool { return f.Adopted[pod] },
		Missing:   func(pod string) bool { return f.Missing[pod] },
		NextFloor: func(floor int64) int64 { return control.NextFloor(floor, f.Now) },
		Term:      min(f.Group.Status.Term, control.MaxTerm),
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
	return &Problem{v1.ReasonEarlierGroup, fmt.Sprintf("The %s of %s %s not left an earlier group of this name yet: this group begins after that; "+
		"if the problem persists, delete %s", agents, Abbreviate(f.InEarlierGroup), have, pods)}
}

// agentsAhead returns the pods whose agents use a newer list than the newest known one,
// unless a majority of the newest known list contradicts them.
//
// For example, the status was restored from a backup with list 6 of a, b and c, and the
// agents use list 7. The operator doesn't know the members of list 7, so it must not
// publish another list.
//
// If only a reports list 7, and b and c are connected and report list 6, then list 7 has
// not been adopted by a majority of list 6, so it can't have a coordinator of its own.
// The operator continues with list 6: a single agent must not block the group. Nor must one that reports a list of a group that has
// none, unless a majority of those that are connected does: then the status was lost.
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
	if len(ahead) > 0 && (newest != nil && f.majorityUses(newest) || newest == nil && len(ahead) <= f.connectedPods()/2) {
		return nil
	}
	return ahead
}

// connectedPods returns the number of pods whose agents are connected.
func (f *Facts) connectedPods() (n int) {
	for _, pod := range f.Pods {
		if f.Connected[pod.UID] {
			n++
		}
	}
	return n
}

// majorityUses reports whether a majority of a list is connected, and reports this list or
// an older one.
func (f *Facts) majorityUses(list *v1.MemberList) bool {
	connected := map[string]bool{}
	for _, pod := range f.Pods {
		connected[pod.Name] = f.Connected[pod.UID]
	}
	count := 0
	for _, m := range list.Members {
		if version, reported := f.Versions[m.Pod]; reported && connected[m.Pod] && version <= list.Version {
			count++
		}
	}
	return count > len(list.Members)/2
}

// statusBehindProblem returns the Problem of a group whose agents use a newer list than
// the status has.
func (f *Facts) statusBehindProblem(ahead []string) *Problem {
	use := "use"
	if len(ahead) == 1 {
		use = "uses"
	}
	return &Problem{v1.ReasonStatusBehind, fmt.Sprintf("%s %s a newer member list than the status, which may have been restored from a backup: "+
		"the list cannot change; delete the group, and create it again", Abbreviate(ahead), use)}
}

// newestList returns the newest known list. That is usually the list in the status. But
// for example, the operator has written list 7 to the status and to the ConfigMap, and
// its cache still has the status with list 6, or a backup of it was restored: then list 7
// is the newest.
func (f *Facts) newestList() *v1.MemberList {
	stored, published := f.Group.Status.MemberList, f.publishedList()
	switch {
	case published == nil, stored != nil && stored.Version > published.Version:
		return stored
	case stored == nil:
		return published
	case isSuccessor(published, stored):
		published.Previous.LeaseMillis = stored.LeaseMillis // It isn't in the document.
		return published
	case stored.Version < published.Version:
		return stored // The operator did not write this document: it updates the status first.
	case stored.State == v1.ListAdopting:
		stored = stored.DeepCopy()
		known := len(stored.Departed)
		if stored.Departed = union(stored.Departed, published.Departed); len(stored.Departed) > known {
			stored.Floor = new(max(floorOf(stored), floorOf(published)))
		}
	}
	return stored
}

// isSuccessor reports whether next can follow current: the API server rejects any other
// list in the status.
func isSuccessor(next, current *v1.MemberList) bool {
	return next.Version == current.Version+1 && current.State == v1.ListSettled && slices.Equal(next.Previous.Members, current.Members)
}

// publishedList returns the list in the ConfigMap, or nil if there is none. A document
// does not contain whether its list has settled, so publishedList assumes that it hasn't.
func (f *Facts) publishedList() *v1.MemberList {
	if f.Published == nil || f.Published.UID != string(f.Group.UID) {
		return nil
	}
	g := &f.Published.Group
	list := &v1.MemberList{Version: int64(g.Version), State: v1.ListSettled, Members: listMembers(g.Members), LeaseMillis: g.Safety.LeaseMillis}
	switch {
	case g.Version == 0 || len(g.Members) == 0 || g.Version > 1 && g.Previous == nil || g.Floor > f.maxFloor():
		return nil // The operator did not write this document.
	case g.Version > 1:
		list.State = v1.ListAdopting
		list.Previous = &v1.PreviousList{Version: int64(g.Previous.Version), Members: listMembers(g.Previous.Members), LeaseMillis: g.Previous.LeaseMillis}
		list.Departed = g.Departed
		list.Floor = new(int64(g.Floor))
	}
	return list
}

// maxFloor returns the highest floor that a valid document can have. No member can be elected
// until its clock has reached the floor, so one that is far ahead is an error or forged: see
// control.MaxRevision. What is in the status can't be corrected.
func (f *Facts) maxFloor() uint64 {
	known := int64(0)
	if stored := f.Group.Status.MemberList; stored != nil {
		known = floorOf(stored)
	}
	ahead := time.UnixMilli(control.MaxRevision(f.Now))
	return uint64(max(known, control.NextFloor(0, ahead))) //nolint:gosec // Terms aren't negative.
}

func listMembers(members []control.Member) []v1.Member {
	list := make([]v1.Member, len(members))
	for i, m := range members {
		list[i] = v1.Member{Pod: m.Name, Priority: int32(m.Priority)}
	}
	return list
}

func floorOf(list *v1.MemberList) int64 {
	if list.Floor == nil {
		return 0
	}
	return *list.Floor
}

// union returns some, followed by the names in more that are not in some.
func union(some, more []string) []string {
	known := make(map[string]bool, len(some))
	for _, name := range some {
		known[name] = true
	}
	for _, name := range more {
		if !known[name] {
			known[name] = true
			some = append(some, name)
		}
	}
	return some
}
