package sim

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
)

// Describe says a scenario in one line:
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

// maxNamed is how many processes, or runs of them, a line names.
const maxNamed = 12

// FormatRanges names processes in ascending order, with neighbours as a span:
// 1-3, 7, 9-10.
func FormatRanges(ids []election.ID) string {
	sorted := slices.Sorted(slices.Values(ids))
	var spans []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if len(spans) == maxNamed {
			return fmt.Sprintf("%s and %d more", strings.Join(spans, ", "), len(sorted)-i)
		}
		span := fmt.Sprint(sorted[i])
		if j > i {
			span = fmt.Sprintf("%d-%d", sorted[i], sorted[j])
		}
		spans, i = append(spans, span), j+1
	}
	return strings.Join(spans, ", ")
}

// FormatSequence names processes in the order given: 3 1 2.
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

// Unreachable reports whether a process is down in such a way that what is sent to
// it is lost: not even its control part forwards.
func (s *Scenario) Unreachable(id election.ID) bool {
	if !slices.Contains(s.Crashed, id) {
		return false
	}
	algorithm, err := catalog.Find(s.Algorithm)
	return err != nil || s.Safety != "" || !algorithm.DeadForward
}

// Transcript writes what happens, one line for each fact: the moment in
// milliseconds, the process, and what it got, found or sent.
type Transcript struct {
	To io.Writer
	// Unreachable, if set, tells to whom messages are lost.
	Unreachable func(election.ID) bool
}

// Watch writes one step.
func (t *Transcript) Watch(step Step) {
	if step.Fault != "" {
		t.line(step, "FAULT", step.Fault)
		return
	}
	if step.Input.Kind == election.TimePassed && len(step.Output.Send)+len(step.Output.Events) == 0 {
		return // an alarm that was for nothing
	}
	t.line(step, "gets", step.Input.Describe())
	for _, e := range step.Output.Events {
		t.line(step, "finds", e.Describe())
	}
	for _, m := range step.Output.Send {
		said := m.Describe()
		if t.Unreachable != nil && t.Unreachable(m.To) {
			said += fmt.Sprintf(" (lost: %d is down)", m.To)
		}
		t.line(step, "sends", said)
	}
}

func (t *Transcript) line(step Step, verb, said string) {
	fmt.Fprintf(t.To, "%10.3f ms  %4d  %-5s  %s\n", Millis(step.At), step.Process, verb, said)
}

// Millis are ticks in milliseconds.
func Millis(t election.Tick) float64 { return float64(t) / float64(Millisecond) }

// ByCoordinator are those who name the same coordinator at the end.
type CoordinatorGroup struct {
	Coordinator election.ID
	Processes   []election.ID
}

// ByCoordinator groups the processes that are up by whom they name, largest group first.
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
	slices.SortStableFunc(groups, func(a, b CoordinatorGroup) int { return cmp.Compare(len(b.Processes), len(a.Processes)) })
	return groups
}

// Describe says how a scenario ended in one line:
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
	var said []string
	for _, g := range groups[:min(len(groups), maxNamed)] {
		whom := fmt.Sprint(g.Coordinator)
		if g.Coordinator == election.None {
			whom = "nobody"
		}
		said = append(said, fmt.Sprintf("%s %s %s", FormatRanges(g.Processes), plural(len(g.Processes), "names", "name"), whom))
	}
	if more := len(groups) - maxNamed; more > 0 {
		said = append(said, fmt.Sprintf("and %d more coordinators are named", more))
	}
	return "no agreement: " + strings.Join(said, "; ")
}

// Count is how many messages of a kind were sent.
type Count struct {
	Kind  election.Kind
	Count int
}

// Counts are the messages of each kind that was sent, in the order of the kinds.
func (o *Outcome) Counts() []Count {
	var counts []Count
	for _, k := range election.Kinds() {
		if n := o.Messages[k]; n > 0 {
			counts = append(counts, Count{Kind: k, Count: n})
		}
	}
	return counts
}
