package describe

import (
	"cmp"
	"slices"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// analysis is what determines the coordinator of a group, and which failures the group tolerates.
type analysis struct {
	// members is the number of members in the list, and up the number of those that are up.
	members, up int
	// missing is how many more members must be up for a majority of each list in force,
	// and spare how many of those that are up can fail.
	missing, spare int
	// majority is the majority of the newest list.
	majority int
	// needsMajority means that a coordinator needs a majority of each list in force, of which votes
	// has one entry for each.
	needsMajority bool
	votes         []votes
	// coordinator is the pod of the coordinator, or "".
	coordinator string
	// candidates has the eligible members without the coordinator, with the highest priority first.
	candidates []v1.Process
	// above has the members with a higher priority than the coordinator, or all members if there is no coordinator.
	above []v1.Process
}

// votes are those of a member list: the members that are up, and how many of them are a majority.
type votes struct {
	up       map[string]bool
	majority int
}

func isUp(p *v1.Process) bool {
	return p.Status == v1.ProcessCoordinator || p.Status == v1.ProcessNormal
}

// isEligible reports whether a member would be elected if it had the highest priority.
func isEligible(p *v1.Process) bool {
	return isUp(p) && p.Priority > 0 && p.Reason != v1.ProcessNotEligible && p.Reason != v1.ProcessPodTerminating
}

// heldBack returns 1 if a member is held back because of short tenures, else 0.
func heldBack(p v1.Process) int {
	if p.Reason == v1.ProcessHeldBack {
		return 1
	}
	return 0
}

func analyze(g *v1.ElectionGroup) analysis {
	a := analysis{needsMajority: g.Spec.Safety.Mode != v1.Available}
	up := map[string]bool{}
	if g.Status.Coordinator != nil {
		a.coordinator = g.Status.Coordinator.Pod
	}
	for i := range g.Status.Processes {
		p := &g.Status.Processes[i]
		up[p.Pod] = isUp(p)
		if p.Pod == a.coordinator {
			continue
		}
		if isEligible(p) {
			a.candidates = append(a.candidates, *p)
		}
		if a.coordinator == "" || p.Priority > g.Status.Coordinator.Priority {
			a.above = append(a.above, *p)
		}
	}
	highestFirst := func(a, b v1.Process) int { return int(b.Priority) - int(a.Priority) }
	slices.SortStableFunc(a.candidates, func(a, b v1.Process) int { // Those that are held back come last.
		return cmp.Or(cmp.Compare(heldBack(a), heldBack(b)), highestFirst(a, b))
	})
	slices.SortStableFunc(a.above, highestFirst)
	a.countVotes(g.Status.Protocol.MemberList, g.Status.Processes, up)
	return a
}

// countVotes counts the votes. While a list is being adopted, a coordinator also needs a majority of the previous one.
func (a *analysis) countVotes(list *v1.MemberList, rows []v1.Process, up map[string]bool) {
	if list == nil {
		list = &v1.MemberList{}
		for _, row := range rows {
			list.Members = append(list.Members, v1.Member{Pod: row.Pod, Priority: row.Priority})
		}
	}
	count := func(members []v1.Member) votes {
		v := votes{map[string]bool{}, len(members)/2 + 1}
		for _, m := range members {
			if up[m.Pod] {
				v.up[m.Pod] = true
			}
		}
		a.votes = append(a.votes, v)
		return v
	}
	newest := count(list.Members)
	a.members, a.up, a.majority = len(list.Members), len(newest.up), newest.majority
	a.missing, a.spare = max(0, a.majority-a.up), max(0, a.up-a.majority)
	if list.State == v1.ListAdopting && list.Previous != nil {
		previous := count(list.Previous.Members)
		have, need := len(previous.up), previous.majority
		a.missing, a.spare = max(a.missing, need-have), min(a.spare, max(0, have-need))
	}
}
