package membership

import (
	"slices"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
)

// toMemberList returns the list of the status without Kubernetes, for package memberlist.
func toMemberList(l *v1.MemberList) *memberlist.List[string] {
	if l == nil {
		return nil
	}
	list := &memberlist.List[string]{
		Version: l.Version, Members: toMembers(l.Members), Lease: int64(l.LeaseMillis), Departed: slices.Clone(l.Departed),
		Floor: floorOf(l), Settled: l.State == v1.ListSettled,
	}
	if l.Previous != nil {
		list.Previous, list.PreviousLease = toMembers(l.Previous.Members), int64(l.Previous.LeaseMillis)
	}
	return list
}

func toMembers(members []v1.Member) []memberlist.Member[string] {
	list := make([]memberlist.Member[string], len(members))
	for i, m := range members {
		list[i] = memberlist.Member[string]{Name: m.Pod, Priority: int64(m.Priority)}
	}
	return list
}

// statusList is the reverse of toMemberList.
func statusList(l *memberlist.List[string]) *v1.MemberList {
	if l == nil {
		return nil
	}
	list := &v1.MemberList{Version: l.Version, State: v1.ListAdopting, Members: statusMembers(
		l.Members), LeaseMillis: int32(l.Lease), Departed: l.Departed}
	if l.Settled {
		list.State = v1.ListSettled
	}
	if l.Version > 1 {
		list.Previous = &v1.PreviousList{Members: statusMembers(l.Previous), LeaseMillis: int32(l.PreviousLease)}
		list.Floor = &l.Floor
	}
	return list
}

func statusMembers(members []memberlist.Member[string]) []v1.Member {
	list := make([]v1.Member, len(members))
	for i, m := range members {
		list[i] = v1.Member{Pod: m.Name, Priority: int32(m.Priority)}
	}
	return list
}
