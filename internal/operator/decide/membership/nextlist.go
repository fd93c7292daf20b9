package membership

import (
	"cmp"
	"fmt"
	"slices"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// nextList returns the member list for the status: the present one, or its successor. The
// Problem is why that is not the wanted list.
func (f *planner) nextList(ahead []string) (*v1.MemberList, *Problem) {
	current := f.MemberList()
	if len(ahead) > 0 {
		return current, f.statusBehindProblem(ahead)
	}
	wanted, problem := f.declaredMembers(current)
	wanted = f.withWitnesses(wanted)
	if f.waitsForEarlierGroup() && (current != nil || len(wanted) > 0) {
		return current, cmp.Or(earlierGroupProblem(f.inEarlierGroup()), problem)
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
func (f *planner) waitsForEarlierGroup() bool {
	if f.Group.Spec.Safety.Mode == v1.Available {
		return false
	}
	for name := range f.Agents {
		if f.Report(name) != nil {
			return false
		}
	}
	pending := false
	for name, pod := range f.Pods {
		agent := f.Agents[name]
		pending = pending || !agent.Connected && agent.Problem == "" && IsFollowed(pod)
	}
	return pending || len(f.inEarlierGroup()) > 0
}

// inEarlierGroup returns the pods whose agents are connected, and participate in an earlier group of this name.
func (f *planner) inEarlierGroup() (pods []string) {
	for name, agent := range f.Agents {
		if agent.Connected && agent.Report != nil && agent.Report.UID != string(f.Group.UID) {
			pods = append(pods, name)
		}
	}
	return pods
}

// next returns the next step after a list: see package memberlist.
func (f *planner) next(current *v1.MemberList, wanted []v1.Member) *v1.MemberList {
	known := memberlist.Facts{
		Wanted:      membersOf(wanted, nil),
		LeaseMillis: longestLease(f.Group),
		Draining:    f.coordinatorDrains(current),
		Published:   f.Published != nil,
		Identity:    func(pod string) string { return f.Agents[pod].Identity },
		Adopted:     func(pod string) bool { return f.Adopted[pod] },
		Missing:     func(pod string) bool { return f.Missing[pod] || f.Retired[pod] },
		Seconds:     control.SecondsAt(f.Now),
		Term:        max(f.Group.Status.Term, f.reportedTerm()),
	}
	return statusList(known.Next(listOf(current)))
}

// listOf returns the list of the status, without addresses.
func listOf(l *v1.MemberList) *memberlist.List {
	if l == nil {
		return nil
	}
	list := &memberlist.List{
		Version: uint32(l.Version), Members: membersOf(l.Members, l.Identities), LeaseMillis: l.LeaseMillis,
		Departed: l.Departed, Settled: l.State == v1.ListSettled,
	}
	if p := l.Previous; p != nil {
		list.Previous = &memberlist.List{
			Version: uint32(p.Version), Members: membersOf(p.Members, p.Identities), LeaseMillis: p.LeaseMillis,
		}
	}
	return list
}

func membersOf(members []v1.Member, identities map[string]v1.Identity) []memberlist.Member {
	list := make([]memberlist.Member, len(members))
	for i, m := range members {
		list[i] = memberlist.Member{Name: m.Pod, Priority: uint32(m.Priority), Identity: string(identities[m.Pod])}
	}
	return list
}

// statusList is the reverse of listOf.
func statusList(l *memberlist.List) *v1.MemberList {
	if l == nil {
		return nil
	}
	list := &v1.MemberList{
		Version: int64(l.Version), State: v1.ListAdopting, LeaseMillis: l.LeaseMillis, Departed: l.Departed,
	}
	list.Members, list.Identities = statusMembers(l.Members)
	if l.Settled {
		list.State = v1.ListSettled
	}
	if p := l.Previous; p != nil {
		list.Previous = &v1.PreviousList{Version: int64(p.Version), LeaseMillis: p.LeaseMillis}
		list.Previous.Members, list.Previous.Identities = statusMembers(p.Members)
	}
	return list
}

func statusMembers(members []memberlist.Member) (list []v1.Member, identities map[string]v1.Identity) {
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

// reportedTerm returns the highest term that an agent of the group reports, of those that can be. A single agent is
// believed if the term is one of a known list. Agents may have granted a claim under a list that its sender invented.
// If the others are no majority of the list, nobody can be elected under it, and the next list must be above that term.
func (f *planner) reportedTerm() (highest int64) {
	list := f.MemberList()
	if list == nil {
		return 0
	}
	var terms []int64
	for _, m := range list.Members {
		report := f.Report(m.Pod)
		if report == nil {
			continue
		}
		term := int64(min(report.UsedTerm, memberlist.MaxTerm))
		terms = append(terms, term)
		if term>>memberlist.CounterBits <= list.Version {
			highest = max(highest, term)
		}
	}
	slices.Sort(terms)
	if majority := len(list.Members)/2 + 1; len(terms) >= majority {
		highest = max(highest, terms[majority-1])
	}
	return highest
}

// coordinatorDrains reports whether the list in force has removed or demoted the coordinator, which has not handed over
// yet. That takes the drain timeout at most: then its members replace it. The status keeps a coordinator while too
// few agents report, so this counts only while a majority and the agent of the coordinator are connected.
func (f *planner) coordinatorDrains(current *v1.MemberList) bool {
	coordinator := f.Group.Status.Coordinator
	if current == nil || coordinator == nil || f.MajorityLost {
		return false
	}
	mayLead := func(m v1.Member) bool { return m.Pod == coordinator.Pod && m.Priority > 0 }
	return !slices.ContainsFunc(current.Members, mayLead) && f.Accepts(coordinator.Pod)
}

// earlierGroupProblem returns the Problem of a group that must not begin yet: an agent
// in the earlier group may be its coordinator, and would not learn of the new group.
func earlierGroupProblem(agentsOf []string) *Problem {
	if len(agentsOf) == 0 {
		return nil
	}
	n := len(agentsOf)
	return &Problem{v1.ReasonEarlierGroup, fmt.Sprintf(
		"The %s of %s %s not left an earlier group of this name yet: this group begins after that; "+
			"if the problem persists, delete %s", Plural(n, "agent", "agents"), Abbreviate(agentsOf), Plural(n, "has", "have"),
		Plural(n, "the pod", "these pods"))}
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
func (f *planner) agentsAhead(newest *v1.MemberList) []string {
	known := int64(0)
	if newest != nil {
		known = newest.Version
	}
	var ahead []string
	connected := 0
	for pod := range f.Agents {
		if f.Accepts(pod) {
			connected++
		}
		// Also if the agent isn't connected now: no agent goes back to an older list.
		if report := f.Report(pod); report != nil && int64(report.Version) > known {
			ahead = append(ahead, pod)
		}
	}
	if len(ahead) > 0 &&
		(newest != nil && f.majorityUses(newest) || newest == nil && len(ahead) <= connected/2) {
		return nil
	}
	return ahead
}

// majorityUses reports whether a majority of a list is connected, and reports this list or an older one.
func (f *planner) majorityUses(list *v1.MemberList) bool {
	return facts.Majority(list, func(pod string) bool {
		report := f.Report(pod)
		return report != nil && f.Accepts(pod) && int64(report.Version) <= list.Version
	})
}

// statusBehindProblem returns the Problem of a group whose agents use a newer list than the status has.
func (f *planner) statusBehindProblem(ahead []string) *Problem {
	return &Problem{v1.ReasonStatusBehind, fmt.Sprintf(
		"%s %s a newer member list than the status, which may have been restored from a backup: "+
			"the list cannot change; delete the group, and create it again",
		Abbreviate(ahead), Plural(len(ahead), "uses", "use"))}
}
