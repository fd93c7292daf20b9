package membership

import (
	"fmt"
	"slices"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// list is the member list that should be in the status, and what keeps it from
// being the wanted one: the newest that is known, or the next one.
func nextList(f *Facts, current *v1.MemberList, ahead []string) (*v1.MemberList, *Problem) {
	if f.configMapConflict() {
		// What can't be published can neither begin nor be adopted.
		name := f.ConfigMap.Name
		return f.Group.Status.MemberList, &Problem{v1.ReasonConfigMapConflict, fmt.Sprintf(
			"ConfigMap %s is somebody else's, and agents would mount it: give it another name, or delete it", name)}
	}
	if len(ahead) > 0 {
		return f.Group.Status.MemberList, f.statusBehindProblem(ahead)
	}
	wanted, problem := f.wantedMembers(current)
	switch {
	case current == nil && len(wanted) == 0:
		return nil, problem
	case current == nil && len(f.InEarlierGroup) > 0 && f.Group.Spec.Safety.Mode != v1.Available:
		return nil, f.earlierGroupProblem()
	case current == nil:
		return &v1.MemberList{Version: 1, State: v1.ListSettled, Members: wanted}, problem
	case current.State == v1.ListAdopting:
		return f.advance(current), problem
	case len(wanted) == 0 || slices.Equal(wanted, current.Members):
		return current, problem
	}
	return f.successor(current, wanted), problem
}

// elsewhere is the Problem of a group that must not begin yet: one of the agents
// in the group before may lead there, and nobody there would hear of it here.
func (f *Facts) earlierGroupProblem() *Problem {
	are, them := "are", "these pods"
	if len(f.InEarlierGroup) == 1 {
		are, them = "is", "the pod"
	}
	return &Problem{v1.ReasonEarlierGroup, fmt.Sprintf("%s %s still in an earlier group of this name, and told to leave it: this one begins "+
		"after that; if it lasts, delete %s", Abbreviate(f.InEarlierGroup), are, them)}
}

// ahead are the pods whose agents go by a newer list than the newest that is known.
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
	return ahead
}

// overtaken is the Problem of a group whose agents know more of it than its status.
func (f *Facts) statusBehindProblem(ahead []string) *Problem {
	goes := "go"
	if len(ahead) == 1 {
		goes = "goes"
	}
	return &Problem{v1.ReasonStatusBehind, fmt.Sprintf("%s %s by a member list that is newer than the status, which seems to be from a backup: "+
		"the list stays as it is; delete the group and make it anew", Abbreviate(ahead), goes)}
}

// newest is the newest list that is known. It is the one in the status, but that
// may have been lost in a backup, or be an old copy.
func (f *Facts) newestList() *v1.MemberList {
	kept, told := f.Group.Status.MemberList, f.publishedList()
	switch {
	case told == nil, kept != nil && kept.Version > told.Version:
		return kept
	case kept == nil || isSuccessor(told, kept):
		return told
	case kept.Version < told.Version:
		return kept // Whoever wrote this wasn't the operator: the status comes first.
	case kept.State == v1.ListAdopting:
		kept = kept.DeepCopy()
		kept.Departed = union(kept.Departed, told.Departed)
	}
	return kept
}

// follows reports whether one list can be the next after another: the API server
// lets no other one into the status.
func isSuccessor(next, current *v1.MemberList) bool {
	return next.Version == current.Version+1 && current.State == v1.ListSettled && slices.Equal(next.Previous.Members, current.Members)
}

// told is the list that agents were told by the ConfigMap, nil if there is none.
// A document doesn't say whether its list has settled, so it hasn't.
func (f *Facts) publishedList() *v1.MemberList {
	if f.Published == nil || f.Published.UID != string(f.Group.UID) {
		return nil
	}
	g := &f.Published.Group
	told := &v1.MemberList{Version: int64(g.Version), State: v1.ListSettled, Members: listMembers(g.Members)}
	switch {
	case g.Version == 0 || len(g.Members) == 0 || g.Version > 1 && g.Previous == nil:
		return nil // Whoever wrote this wasn't the operator.
	case g.Version > 1:
		told.State = v1.ListAdopting
		told.Previous = &v1.PreviousList{Version: int64(g.Previous.Version), Members: listMembers(g.Previous.Members)}
		told.Departed = g.Departed
		told.Floor = new(int64(g.Floor))
	}
	return told
}

func listMembers(told []control.Member) []v1.Member {
	list := make([]v1.Member, len(told))
	for i, m := range told {
		list[i] = v1.Member{Pod: m.Name, Priority: int32(m.Priority)}
	}
	return list
}

// adopt is the list one step further: with more departed members, or settled, as
// soon as a majority of the list before has adopted it.
func (f *Facts) advance(current *v1.MemberList) *v1.MemberList {
	next := current.DeepCopy()
	if told := f.publishedList(); told == nil || told.Version != current.Version {
		return next // A pod that comes now would still begin with the list before.
	}
	var missing []string
	for _, m := range current.Previous.Members {
		if f.Missing[m.Pod] {
			missing = append(missing, m.Pod)
		}
	}
	next.Departed = union(next.Departed, missing)
	departed := make(map[string]bool, len(next.Departed))
	for _, name := range next.Departed {
		departed[name] = true
	}
	count := 0
	for _, m := range current.Previous.Members {
		if departed[m.Pod] || f.Adopted[m.Pod] {
			count++
		}
	}
	if count > len(current.Previous.Members)/2 {
		next.State = v1.ListSettled
	}
	return next
}

// union is the names in some and those in more.
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

// succeed is the list after a settled one.
func (f *Facts) successor(current *v1.MemberList, wanted []v1.Member) *v1.MemberList {
	floor := max(control.TermAt(f.Now), f.Group.Status.Term)
	if current.Floor != nil {
		floor = max(floor, *current.Floor)
	}
	return &v1.MemberList{
		Version: current.Version + 1, State: v1.ListAdopting, Members: wanted,
		Previous: &v1.PreviousList{Version: current.Version, Members: current.Members},
		Floor:    new(min(floor, control.MaxTerm)),
	}
}
