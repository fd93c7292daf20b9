package describe

import (
	"slices"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const operatorPort = control.OperatorPort

// facts are what decides who leads, and who could.
type groupFacts struct {
	// members is how many the list has, and up how many of them are.
	members, up int
	// missing is how many more are needed for a majority of each list in force, 0
	// if there is one; spare how many can be lost.
	missing, spare int
	// needed is the majority of the newest list.
	needed int
	// grants: a coordinator needs a majority.
	grants bool
	// candidates are those that are up and would stand, the highest first, without
	// the coordinator.
	candidates []v1.Process
	// above rank above the coordinator, or are all if there is none.
	above []v1.Process
}

// up: the others hear it.
func up(p *v1.Process) bool { return p.Status == v1.ProcessCoordinator || p.Status == v1.ProcessNormal }

// stands: it would lead, if it were the highest.
func stands(p *v1.Process) bool {
	return up(p) && p.Priority > 0 && p.Reason != v1.ProcessNotEligible && p.Reason != v1.ProcessPodTerminating
}

func factsOf(g *v1.ElectionGroup) groupFacts {
	f := groupFacts{grants: g.Spec.Safety.Mode != v1.Available}
	alive := map[string]bool{}
	leads := ""
	if g.Status.Coordinator != nil {
		leads = g.Status.Coordinator.Pod
	}
	for i := range g.Status.Processes {
		p := &g.Status.Processes[i]
		alive[p.Pod] = up(p)
		if p.Pod == leads {
			continue
		}
		if stands(p) {
			f.candidates = append(f.candidates, *p)
		}
		if leads == "" || p.Priority > g.Status.Coordinator.Priority {
			f.above = append(f.above, *p)
		}
	}
	highestFirst := func(a, b v1.Process) int { return int(b.Priority) - int(a.Priority) }
	slices.SortStableFunc(f.candidates, highestFirst)
	slices.SortStableFunc(f.above, highestFirst)
	f.count(g.Status.MemberList, g.Status.Processes, alive)
	return f
}

// count counts the votes. While a list is being adopted, those of both count.
func (f *groupFacts) count(list *v1.MemberList, rows []v1.Process, alive map[string]bool) {
	if list == nil {
		list = &v1.MemberList{}
		for _, row := range rows {
			list.Members = append(list.Members, v1.Member{Pod: row.Pod, Priority: row.Priority})
		}
	}
	votes := func(members []v1.Member) (have, need int) {
		for _, m := range members {
			if alive[m.Pod] {
				have++
			}
		}
		return have, len(members)/2 + 1
	}
	have, need := votes(list.Members)
	f.members, f.up, f.needed = len(list.Members), have, need
	f.missing, f.spare = max(0, need-have), max(0, have-need)
	if list.State == v1.ListAdopting && list.Previous != nil {
		have, need := votes(list.Previous.Members)
		f.missing, f.spare = max(f.missing, need-have), min(f.spare, max(0, have-need))
	}
}
