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

// FormatRanges formats processes in ascending order, with adjacent ones as a range:
// 1-3, 7, 9-10.
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

// Transcript writes one line for each input, event and message: the time in
// milliseconds, the process, and a description.
type Transcript struct {
	To io.Writer
	// Names are those of the processes, by default their numbers.
	Names election.Names
	// Width is the space for a name.
	Width int
	// Note, if set, returns what else there is to say about a message that is received
	// or sent in this step, or "".
	Note func(Step, *election.Message) string
}

// Watch writes one step.
func (t *Transcript) Watch(step Step) {
	if step.Fault != "" {
		t.line(step, "FAULT", step.Fault)
		return
	}
	if step.Input.Kind == election.TimePassed && len(step.Output.Send)+len(step.Output.Events) == 0 {
		return // a timer that fired early
	}
	name := t.name
	got := step.Input.DescribeWith(name)
	if step.Input.Kind == election.Receive {
		got += t.note(step, &step.Input.Message)
	}
	t.line(step, "gets", got)
	for _, e := range step.Output.Events {
		t.line(step, "finds", e.DescribeWith(name))
	}
	for i := range step.Output.Send {
		m := &step.Output.Send[i]
		t.line(step, "sends", m.DescribeWith(name)+t.note(step, m))
	}
}

func (t *Transcript) line(step Step, verb, text string) {
	fmt.Fprintf(t.To, "%10.3f ms  %*s  %-5s  %s\n", Millis(step.At), max(4, t.Width), t.name(step.Process), verb, text)
}

func (t *Transcript) name(id election.ID) string {
	if t.Names == nil {
		return election.Numbers(id)
	}
	return t.Names(id)
}

func (t *Transcript) note(step Step, m *election.Message) string {
	if t.Note == nil {
		return ""
	}
	if text := t.Note(step, m); text != "" {
		return " (" + text + ")"
	}
	return ""
}

// NoteLost is the Note of a scenario: messages to processes that are down are lost.
func (s *Scenario) NoteLost(step Step, m *election.Message) string {
	if m.From == step.Process && s.Unreachable(m.To) {
		return fmt.Sprintf("lost: %d is down", m.To)
	}
	return ""
}

// Millis converts ticks to milliseconds.
func Millis(t election.Tick) float64 { return float64(t) / float64(Millisecond) }

// CoordinatorGroup is the set of live processes that recognize the same coordinator.
type CoordinatorGroup struct {
	Coordinator election.ID
	Processes   []election.ID
}

// ByCoordinator groups the live processes by the coordinator that they recognize,
// the largest group first.
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
		texts = append(texts, fmt.Sprintf("%s %s %s", FormatRanges(g.Processes), plural(len(g.Processes), "names", "name"), whom))
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

// Counts returns the number of messages of each kind that was sent, in the order of
// the kinds.
func (o *Outcome) Counts() []Count {
	var counts []Count
	for _, k := range election.Kinds() {
		if n := o.Messages[k]; n > 0 {
			counts = append(counts, Count{Kind: k, Count: n})
		}
	}
	return counts
}
