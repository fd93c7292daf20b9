package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// Describe describes a scenario in one line:
//
//	Bully, 10 processes: 10 is down, and 4 starts
func (s *Scenario) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d processes", s.Algorithm, s.Processes)
	if s.Processes == 1 {
		b.Reset()
		fmt.Fprintf(&b, "%s, 1 process", s.Algorithm)
	}
	if s.Safety != "" {
		fmt.Fprintf(&b, ", %s", s.Safety)
	}
	if len(s.Ring) > 0 {
		fmt.Fprintf(&b, ", ring %s", FormatSequence(s.Ring))
	}
	if s.Recover != election.None {
		fmt.Fprintf(&b, ": %d was down and comes back", s.Recover)
		return b.String()
	}
	down, start := "nobody is down", "starts"
	if len(s.Crashed) > 0 {
		down = FormatRanges(s.Crashed) + " " + plural(len(s.Crashed), "is", "are") + " down"
	}
	if len(s.Initiators) > 1 {
		start = "start"
	}
	fmt.Fprintf(&b, ": %s, and %s %s", down, FormatRanges(s.Initiators), start)
	return b.String()
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// maxNamed is the most processes, or ranges of them, that a line names.
const maxNamed = 12

// FormatRanges formats processes in ascending order, with adjacent ones as a range: 1-3, 7, 9-10.
func FormatRanges(ids []election.ID) string {
	sorted := slices.Sorted(slices.Values(ids))
	var ranges []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if len(ranges) == maxNamed {
			return fmt.Sprintf("%s and %d more", strings.Join(ranges, ", "), len(sorted)-i)
		}
		text := fmt.Sprint(sorted[i])
		if j > i {
			text = fmt.Sprintf("%d-%d", sorted[i], sorted[j])
		}
		ranges, i = append(ranges, text), j+1
	}
	return strings.Join(ranges, ", ")
}

// FormatSequence formats processes in the given order: 3 1 2.
func FormatSequence(ids []election.ID) string {
	named := make([]string, 0, maxNamed)
	for _, id := range ids[:min(len(ids), maxNamed)] {
		named = append(named, fmt.Sprint(id))
	}
	if more := len(ids) - maxNamed; more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(named, " ")
}

// Unreachable reports whether messages to a process are lost because it is down and
// its control part doesn't forward them.
func (s *Scenario) Unreachable(id election.ID) bool {
	if !slices.Contains(s.Crashed, id) {
		return false
	}
	algorithm, err := catalog.Find(s.Algorithm)
	return err != nil || s.Safety != "" || !algorithm.DeadForward
}

// NoteLost is the Note of a scenario: messages to processes that are down are lost.
func (s *Scenario) NoteLost(step transcript.Step, m *election.Message) string {
	if m.From == step.Process && s.Unreachable(m.To) {
		return fmt.Sprintf("lost: %d is down", m.To)
	}
	return ""
}

// CoordinatorGroup is the set of live processes that recognize the same coordinator.
type CoordinatorGroup struct {
	Coordinator election.ID
	Processes   []election.ID
}

// ByCoordinator groups the live processes by the coordinator that they recognize, the largest group first.
func (o *Outcome) ByCoordinator() []CoordinatorGroup {
	var groups []CoordinatorGroup
	for _, v := range o.Views {
		if v.Down {
			continue
		}
		named := v.Status.Coordinator
		i := slices.IndexFunc(groups, func(g CoordinatorGroup) bool { return g.Coordinator == named })
		if i < 0 {
			i, groups = len(groups), append(groups, CoordinatorGroup{Coordinator: named})
		}
		groups[i].Processes = append(groups[i].Processes, v.Process)
	}
	slices.SortStableFunc(groups,
		func(a, b CoordinatorGroup) int { return cmp.Compare(len(b.Processes), len(a.Processes)) })
	return groups
}

// Describe describes the outcome in one line:
//
//	9 is coordinator, and all 9 that are up agree
func (o *Outcome) Describe() string {
	groups := o.ByCoordinator()
	if o.Agreed {
		up := len(groups[0].Processes)
		if up == 1 {
			return fmt.Sprintf("%d is coordinator, the only one that is up", o.Coordinator)
		}
		return fmt.Sprintf("%d is coordinator, and all %d that are up agree", o.Coordinator, up)
	}
	var texts []string
	for _, g := range groups[:min(len(groups), maxNamed)] {
		whom := fmt.Sprint(g.Coordinator)
		if g.Coordinator == election.None {
			whom = "nobody"
		}
		texts = append(texts,
			fmt.Sprintf("%s %s %s", FormatRanges(g.Processes), plural(len(g.Processes), "names", "name"), whom))
	}
	if more := len(groups) - maxNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more coordinators are named", more))
	}
	return "no agreement: " + strings.Join(texts, "; ")
}

// Count is the number of messages of a kind.
type Count struct {
	Kind  election.Kind
	Count int
}

// Counts returns the number of messages of each kind that was sent, in the order of the kinds.
func (o *Outcome) Counts() []Count {
	var counts []Count
	for _, k := range election.Kinds() {
		if n := o.Messages[k]; n > 0 {
			counts = append(counts, Count{Kind: k, Count: n})
		}
	}
	return counts
}

// Order returns the processes in the order of the ring.
func (s *Scenario) Order() []election.ID {
	if len(s.Ring) > 0 {
		return s.Ring
	}
	return ascendingIDs(s.Processes)
}

func ascendingIDs(n int) []election.ID {
	ids := make([]election.ID, n)
	for i := range ids {
		ids[i] = election.ID(i + 1)
	}
	return ids
}
