package describe

import (
	"cmp"
	"slices"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const operatorPort = control.OperatorPort

// analysis is what determines the coordinator of a group, and which failures the group
// tolerates.
type analysis struct {
	// members is the number of members in the list, and up the number of those that are up.
	members, up int
	// missing is how many more members must be up for a majority of each list in force,
	// and spare how many of those that are up can fail.
	missing, spare int
	// majority is the majority of the newest list.
	majority int
	// needsMajority means that a coordinator needs a majority of each of the lists in force.
	needsMajority bool
	lists         [][]v1.Member
	isUp          map[string]bool
	// coordinator is the pod of the coordinator, or "".
	coordinator string
	// candidates has the eligible members without the coordinator, with the highest
	// priority first.
	candidates []v1.Process
	// above has the members with a higher priority than the coordinator, or all members
	// if there is no coordinator.
	above []v1.Process
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
	a := analysis{needsMajority: g.Spec.Safety.Mode != v1.Available, isUp: map[string]bool{}}
	if g.Status.Coordinator != nil {
		a.coordinator = g.Status.Coordinator.Pod
	}
	for i := range g.Status.Processes {
		p := &g.Status.Processes[i]
		a.isUp[p.Pod] = isUp(p)
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
	a.countVotes(g.Status.MemberList, g.Status.Processes)
	return a
}

// countVotes counts the votes. While a list is being adopted, a coordinator also needs a
// majority of the previous one.
func (a *analysis) countVotes(list *v1.MemberList, rows []v1.Process) {
	if list == nil {
		list = &v1.MemberList{}
		for _, row := range rows {
			list.Members = append(list.Members, v1.Member{Pod: row.Pod, Priority: row.Priority})
		}
	}
	a.lists = [][]v1.Member{list.Members}
	votes := func(members []v1.Member) (have, need int) {
		for _, m := range members {
			if a.isUp[m.Pod] {
				have++
			}
		}
		return have, len(members)/2 + 1
	}
	have, need := votes(list.Members)
	a.members, a.up, a.majority = len(list.Members), have, need
	a.missing, a.spare = max(0, need-have), max(0, have-need)
	if list.State == v1.ListAdopting && list.Previous != nil {
		a.lists = append(a.lists, list.Previous.Members)
		have, need := votes(list.Previous.Members)
		a.missing, a.spare = max(a.missing, need-have), min(a.spare, max(0, have-need))
	}
}
