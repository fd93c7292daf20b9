package membership

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// rankCandidates sets the ranks of the candidates, and returns those that can be in a list. A candidate with an invalid
// name or value is not added; if it is a member, it keeps its place, so that one pod does not block changes of the
// others. The Problem is about the invalid candidates. If it prevents any change, no candidates are returned.
func (f *planner) rankCandidates(all []*candidate) ([]*candidate, *Problem) {
	var valid []*candidate
	invalid := map[string]string{}
	for _, c := range all {
		if err := cmp.Or(f.setRank(c), validateName(c.name)); err != "" {
			invalid[c.name] = err
			if !c.member {
				continue
			}
			c.rankKnown = false
		}
		valid = append(valid, c)
	}
	estimateRanks(valid)
	problem := invalidMembersProblem(invalid)
	if len(valid) > 0 && !slices.ContainsFunc(valid, func(c *candidate) bool { return c.rank != 0 }) {
		return nil, cmp.Or(problem,
			&Problem{v1.ReasonInvalidMembers, "Every pod has priority 0: at least one pod must have a priority above 0"})
	}
	return valid, problem
}

// invalidMembersProblem returns the Problem of invalid pods, or nil if there are none.
func invalidMembersProblem(invalid map[string]string) *Problem {
	if len(invalid) == 0 {
		return nil
	}
	name := slices.Min(slices.Collect(maps.Keys(invalid)))
	message := "Pod " + name + ": " + invalid[name]
	switch n := len(invalid) - 1; {
	case n == 1:
		message += "; 1 more pod is invalid"
	case n > 1:
		message += fmt.Sprintf("; %d more pods are invalid", n)
	}
	return &Problem{v1.ReasonInvalidMembers, message}
}

// validateName returns what is wrong with a name that a pod can have and a member cannot, or "".
func validateName(name string) string {
	for part := range strings.SplitSeq(name, ".") {
		if len(part) > validation.DNS1123LabelMaxLength {
			return fmt.Sprintf("each part of a member's name between dots must have at most %d characters",
				validation.DNS1123LabelMaxLength)
		}
	}
	return ""
}

// setRank sets a candidate's rank. It returns what is wrong with the candidate, or "".
func (f *planner) setRank(c *candidate) string {
	from := f.Group.Spec.PriorityFrom
	switch {
	case from.Ordinal != "":
		return c.rankByOrdinal(from.Ordinal)
	case c.pod == nil:
		return ""
	case from.Annotation != "":
		return c.rankByValue("annotation "+from.Annotation, c.pod.Annotations, from.Annotation, from.Order)
	}
	node := f.Nodes[c.pod.Spec.NodeName]
	if node == nil {
		return ""
	}
	return c.rankByValue("label "+from.NodeLabel+" of node "+node.Name, node.Labels, from.NodeLabel, from.Order)
}

func (c *candidate) rankByOrdinal(order v1.OrdinalOrder) string {
	const invalid = "the name must end in a hyphen and a number, as in a StatefulSet, because priorityFrom is ordinal"
	dash := strings.LastIndexByte(c.name, '-')
	ordinal, err := strconv.ParseUint(c.name[dash+1:], 10, 62)
	if dash < 0 || err != nil {
		return invalid
	}
	c.rankKnown = true
	c.rank = int64(ordinal) + 1
	c.preferred = c.rank
	if order == v1.LowestFirst {
		c.rank = -c.rank
		c.preferred = v1.MaxPriority - int64(ordinal)
	}
	return ""
}

// rankByValue ranks a candidate by a value: by its place in the order if there is one, and otherwise as a number. The
// error doesn't have the value: who may read the status of a group may not read the labels of nodes.
func (c *candidate) rankByValue(what string, values map[string]string, key string, order []v1.LabelValue) string {
	c.rankKnown = true
	value, ok := values[key]
	if len(order) > 0 {
		c.rank = 1
		if i := slices.Index(order, v1.LabelValue(value)); ok && i >= 0 {
			c.rank = int64(1 + len(order) - i)
		}
		c.preferred = c.rank
		return ""
	}
	if !ok {
		c.rank, c.preferred = 1, 1
		return ""
	}
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil || n > v1.MaxPriority {
		return fmt.Sprintf("%s must be an integer from 0 to %d", what, v1.MaxPriority)
	}
	c.rank, c.preferred = int64(n), int64(n)
	return ""
}

// estimateRanks sets the ranks of members whose rank is not known, because they have no
// pod at the moment or an invalid value.
//
// For example, a, b and c have the priorities 10, 20 and 30, and c loses its pod. It gets
// the rank of b, which is next below it, so it keeps its place. If the rank of b has
// become 90, c doesn't move with it: its rank is at most its priority, 30.
func estimateRanks(all []*candidate) {
	members := slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return c.priority == 0 })
	slices.SortFunc(members, func(a, b *candidate) int { return cmp.Compare(a.priority, b.priority) })
	below := int64(1)
	if first := slices.IndexFunc(members, func(c *candidate) bool { return c.rankKnown && c.rank != 0 }); first >= 0 {
		below = members[first].rank
	}
	for _, c := range members {
		if !c.rankKnown {
			c.rank = min(below, int64(c.priority))
		}
		if c.rank != 0 {
			below = c.rank
		}
		if !c.rankKnown {
			c.preferred = int64(c.priority)
		}
	}
}

// assignPriorities assigns unique priorities that keep the order of the ranks: the one that a candidate would get
// alone, or the next higher one that is free. Among candidates of the same rank, members are above new ones, in their
// order: otherwise each new pod of a Deployment would take over. New candidates of the same rank are ordered by name,
// with the first name on top. The preferred one is above all others of its rank.
func assignPriorities(all []*candidate, preferred string) {
	var order []*candidate
	for _, c := range all {
		if c.rank == 0 {
			c.priority = 0
			continue
		}
		order = append(order, c)
	}
	slices.SortFunc(order, func(a, b *candidate) int {
		// A new candidate has priority 0, so it sorts below the members.
		return cmp.Or(cmp.Compare(a.rank, b.rank), preferredLast(preferred, a.name, b.name),
			cmp.Compare(a.priority, b.priority), strings.Compare(b.name, a.name))
	})
	last := int64(0)
	for i, c := range order {
		most := v1.MaxPriority - int64(len(order)-1-i) // It leaves room for those above.
		last = min(max(c.preferred, last+1), most)
		c.priority = int32(last)
	}
}

// preferredLast compares two names, of which the preferred one is the last.
func preferredLast(preferred, a, b string) int {
	switch preferred {
	case a:
		return 1
	case b:
		return -1
	}
	return 0
}
