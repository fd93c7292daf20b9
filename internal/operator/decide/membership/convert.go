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
		Version: l.Version, Members: toMembers(l.Members, l.Identities), Lease: int64(l.LeaseMillis),
		Departed: slices.Clone(l.Departed), Settled: l.State == v1.ListSettled,
	}
	if p := l.Previous; p != nil {
		list.Previous, list.PreviousVersion = toMembers(p.Members, p.Identities), p.Version
		list.PreviousLease = int64(p.LeaseMillis)
	}
	return list
}

func toMembers(members []v1.Member, identities map[string]v1.Identity) []memberlist.Member[string] {
	list := make([]memberlist.Member[string], len(members))
	for i, m := range members {
		list[i] = memberlist.Member[string]{Name: m.Pod, Priority: int64(m.Priority), Identity: string(identities[m.Pod])}
	}
	return list
}

// statusList is the reverse of toMemberList.
func statusList(l *memberlist.List[string]) *v1.MemberList {
	if l == nil {
		return nil
	}
	list := &v1.MemberList{
		Version: l.Version, State: v1.ListAdopting, LeaseMillis: int32(l.Lease), Departed: l.Departed,
	}
	list.Members, list.Identities = statusMembers(l.Members)
	if l.Settled {
		list.State = v1.ListSettled
	}
	if l.Previous != nil {
		list.Previous = &v1.PreviousList{Version: l.PreviousVersion, LeaseMillis: int32(l.PreviousLease)}
		list.Previous.Members, list.Previous.Identities = statusMembers(l.Previous)
	}
	return list
}

func statusMembers(members []memberlist.Member[string]) (list []v1.Member, identities map[string]v1.Identity) {
	list = make([]v1.Member, len(members))
	for i, m := range members {
		list[i] = v1.Member{Pod: m.Name, Priority: int32(m.Priority)}
		if m.Identity != "" {
			if identities == nil {
				identities = map[string]v1.Identity{}
			}
			identities[m.Name] = v1.Identity(m.Identity)
		}
	}
	return list, identities
}
