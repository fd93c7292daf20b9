package membership

import (
	"fmt"
	"slices"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// majorityProblem returns the Problem of wanted members that have to wait for a majority of
// them to be connected, or nil if their list can begin.
//
// A coordinator needs a majority of the new list within about a lease. For example, d, e and f are added to a, b and c
// before their pods run. Three of six are no majority, so the coordinator would lose its office. If the list in force
// has no majority either, waiting protects nothing, and the new list may be the repair.
//
// Elections don't depend on this wait for their safety, only for their availability.
func (f *planner) majorityProblem(current *v1.MemberList, wanted []v1.Member) *Problem {
	var missing []string
	for _, m := range wanted {
		// The operator connects to a witness when a list names it. Only pods that are ready become one.
		isNew := v1.IsWitness(m.Pod) && !hasMember(current.Members, m.Pod)
		if !f.Accepts(m.Pod) && !isNew {
			missing = append(missing, m.Pod)
		}
	}
	connected, majority := len(wanted)-len(missing), len(wanted)/2+1
	if f.Group.Spec.Safety.Mode == v1.Available || connected >= majority || f.MajorityLost ||
		samePods(current.Members, wanted) {
		return nil
	}
	otherwise := "correct spec.members"
	if f.Group.Spec.Selector != nil {
		otherwise = "delete what doesn't"
	}
	return &Problem{v1.ReasonWaitingForMembers, fmt.Sprintf(
		"%d of %d wanted members %s connected, and a coordinator needs %d, so the present list remains: "+
			"make sure that %s %s, or %s",
		connected, len(wanted), Plural(connected, "is", "are"), majority, Abbreviate(missing),
		Plural(len(missing), "runs", "run"), otherwise)}
}

// samePods reports whether two lists have the same members, whatever their order and priorities are.
func samePods(a, b []v1.Member) bool {
	names := func(members []v1.Member) []string {
		all := make([]string, len(members))
		for i, m := range members {
			all[i] = m.Pod
		}
		slices.Sort(all)
		return all
	}
	return slices.Equal(names(a), names(b))
}
