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

// rank finds the candidates' ranks, and who of them can be on a list. One with a bad
// value isn't taken in, and stays as it is if it is a member: one pod must not hold up
// the others. The Problem says what is wrong; it may keep all as it is, too.
func (f *Facts) rankCandidates(all []*candidate) ([]*candidate, *Problem) {
	var able []*candidate
	wrong := map[string]string{}
	for _, c := range all {
		if err := cmp.Or(f.setRank(c), validateName(c.name)); err != "" {
			wrong[c.name] = err
			if !c.member {
				continue
			}
			c.rankKnown = false
		}
		able = append(able, c)
	}
	fillUnknownRanks(able)
	problem := invalidMembersProblem(wrong)
	if len(able) > 0 && !slices.ContainsFunc(able, func(c *candidate) bool { return c.rank != 0 }) {
		return nil, cmp.Or(problem, &Problem{v1.ReasonInvalidMembers, "every pod has priority 0: one at least must be above, to be elected"})
	}
	return able, problem
}

// invalid is the Problem of pods of which something is wrong, nil if there are none.
func invalidMembersProblem(wrong map[string]string) *Problem {
	if len(wrong) == 0 {
		return nil
	}
	name := slices.Min(slices.Collect(maps.Keys(wrong)))
	message := "pod " + name + ": " + wrong[name]
	if n := len(wrong) - 1; n > 0 {
		message += fmt.Sprintf("; and %d more like it", n)
	}
	return &Problem{v1.ReasonInvalidMembers, message}
}

// validateName says what is wrong with a name that pods may have and members mayn't.
func validateName(name string) string {
	for word := range strings.SplitSeq(name, ".") {
		if len(word) > validation.DNS1123LabelMaxLength {
			return fmt.Sprintf("between the dots of a member's name there are %d characters at most: give it a shorter name",
				validation.DNS1123LabelMaxLength)
		}
	}
	return ""
}

// setRank finds one candidate's rank, or says what is wrong.
func (f *Facts) setRank(c *candidate) string {
	from := f.Group.Spec.PriorityFrom
	switch {
	case from.Ordinal != "":
		return c.rankByOrdinal(from.Ordinal)
	case c.pod == nil:
		return ""
	case from.Annotation != "":
		return c.rankByNumber("annotation "+from.Annotation, c.pod.Annotations, from.Annotation)
	}
	node := f.Nodes[c.pod.Spec.NodeName]
	if node == nil {
		return ""
	}
	return c.rankByNumber("label "+from.NodeLabel+" of its node "+node.Name, node.Labels, from.NodeLabel)
}

func (c *candidate) rankByOrdinal(order v1.OrdinalOrder) string {
	const wrong = "its name must end in - and a number, like those of a StatefulSet, since priorityFrom is ordinal"
	dash := strings.LastIndexByte(c.name, '-')
	ordinal, err := strconv.ParseUint(c.name[dash+1:], 10, 62)
	if dash < 0 || err != nil {
		return wrong
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

func (c *candidate) rankByNumber(what string, values map[string]string, key string) string {
	c.rankKnown = true
	value, ok := values[key]
	if !ok {
		c.rank, c.preferred = 1, 1
		return ""
	}
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil || n > v1.MaxPriority {
		const most = 32
		if len(value) > most {
			value = value[:most] + "..."
		}
		return fmt.Sprintf("its %s must be a whole number from 0 to %d, not %q", what, v1.MaxPriority, value)
	}
	c.rank, c.preferred = int64(n), int64(n)
	return ""
}

// surmise gives members whose rank isn't known, since they have no pod just now or a
// bad value, that of the member next below them, so that they stay where they are. One
// that has been put above them doesn't take them along.
func fillUnknownRanks(all []*candidate) {
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

// number gives the candidates unique priorities that keep the order of their
// ranks. Among equals, members are above those that join, or each new pod of a
// Deployment would take over; among those that join, the first by name.
//
// Whoever has a priority keeps it, unless there is no room for the others then.
// With p the priorities in their order, and i the places in it, there is if
//
//	p(j) - p(i) >= j - i    for each two that keep theirs, i < j
//
// which is to say that p(i) - i never falls. So the most that can keep theirs are
// the longest sequence in which it doesn't.
func assignPriorities(all []*candidate) {
	var order []*candidate
	for _, c := range all {
		if c.rank == 0 {
			c.priority = 0
			continue
		}
		order = append(order, c)
	}
	slices.SortFunc(order, func(a, b *candidate) int {
		// One that joins has priority 0, so it comes first: it is below.
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.priority, b.priority), strings.Compare(b.name, a.name))
	})
	keep := retained(order)
	last := int64(0)
	for i, next := 0, 0; i < len(order); i++ {
		c := order[i]
		if next < len(keep) && keep[next] == i {
			next++
		} else {
			// The highest that leaves room for those up to the next keeper.
			most := v1.MaxPriority - int64(len(order)-1-i)
			if next < len(keep) {
				most = int64(order[keep[next]].priority) - int64(keep[next]-i)
			}
			c.priority = int32(min(max(c.preferred, last+1), most))
		}
		last = int64(c.priority)
	}
}

// keepers are the places of those that keep their priorities.
func retained(order []*candidate) []int {
	slack := func(i int) int64 { return int64(order[i].priority) - int64(i) }
	var (
		ends   []int // ends[n] is the place of the lowest end of a sequence of n+1
		before = make([]int, len(order))
	)
	for i, c := range order {
		if c.priority == 0 || slack(i) < 1 || slack(i) > v1.MaxPriority-int64(len(order)-1) {
			continue
		}
		n, _ := slices.BinarySearchFunc(ends, slack(i), func(end int, s int64) int {
			if slack(end) <= s {
				return -1
			}
			return 1
		})
		before[i] = -1
		if n > 0 {
			before[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		}
		ends[n] = i
	}
	if len(ends) == 0 {
		return nil
	}
	var keep []int
	for i := ends[len(ends)-1]; i >= 0; i = before[i] {
		keep = append(keep, i)
	}
	slices.Reverse(keep)
	return keep
}
