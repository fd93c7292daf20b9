package describe

import (
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Explain tells in sentences why the coordinator is who it is, who would be
// next, what the group can lose, and what hinders it.
func Explain(w io.Writer, g *v1.ElectionGroup, now time.Time) {
	f := factsOf(g)
	chapters := []struct {
		title string
		lines []string
	}{
		{"Who leads", []string{who(g, now)}},
		{"Why", why(g, &f)},
		{"Who is next", []string{next(g, &f)}},
		{"What may fail", losses(g, &f)},
		{"What hinders", hindrances(g)},
		{"To see more", commands(g)},
	}
	for i, chapter := range chapters {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, chapter.title)
		for _, line := range chapter.lines {
			fmt.Fprintln(w, "  "+line)
		}
	}
}

func who(g *v1.ElectionGroup, now time.Time) string {
	if c := g.Status.Coordinator; c != nil {
		return fmt.Sprintf("%s leads %s/%s in term %d, since %s (for %s).", c.Pod, g.Namespace, g.Name, c.Term,
			c.ElectedAt.UTC().Format("2006-01-02 15:04:05.000 MST"), ago(c.ElectedAt.Time, now))
	}
	text := fmt.Sprintf("Nobody leads %s/%s", g.Namespace, g.Name)
	if c := condition(g, v1.CoordinatorElected); c != nil && c.Status == metav1.ConditionFalse {
		text += ", for " + ago(c.LastTransitionTime.Time, now)
	}
	if g.Status.Term > 0 {
		text += fmt.Sprintf(". The last one led in term %d", g.Status.Term)
	}
	return text + "."
}

func why(g *v1.ElectionGroup, f *groupFacts) []string {
	c := g.Status.Coordinator
	if c == nil {
		return whyNobody(g, f)
	}
	switch {
	case f.members == 1:
		return []string{"It is the only member."}
	case len(f.above) == 0:
		return []string{fmt.Sprintf("Its priority, %d, is the highest of all %s.", c.Priority, counted(f.members))}
	}
	const most = 5
	lines := []string{fmt.Sprintf("Its priority is %d. It is the highest but for:", c.Priority)}
	for i := range f.above {
		if i == most {
			lines = append(lines, fmt.Sprintf("- %s more", counted(len(f.above)-most)))
			break
		}
		lines = append(lines, "- "+passedOver(g, &f.above[i]))
	}
	return lines
}

func whyNobody(g *v1.ElectionGroup, f *groupFacts) []string {
	c := condition(g, v1.CoordinatorElected)
	switch {
	case f.members == 0:
		return []string{"Its agents haven't been given a list of members yet."}
	case f.grants && f.missing > 0:
		return []string{fmt.Sprintf("A coordinator needs %d of %s. Up: %d.", f.needed, counted(f.members), f.up)}
	case len(f.candidates) == 0:
		return []string{"No member that is up stands: each has priority 0, is on its way out, or is kept from it by its application."}
	case c != nil && c.Message != "":
		return []string{"The operator says: " + sentence(c.Message)}
	}
	return []string{"An election is under way, or the operator hasn't heard of its end."}
}

// passedOver says why a member doesn't lead although it ranks above who does.
func passedOver(g *v1.ElectionGroup, p *v1.Process) string {
	name := fmt.Sprintf("%s (%d)", p.Pod, p.Priority)
	switch {
	case !up(p):
		return name + " is " + status(p) + "."
	case p.Reason == v1.ProcessPodTerminating:
		return name + " is being deleted."
	case !stands(p) && p.Message != "":
		return name + " is up, and doesn't stand: " + sentence(p.Message)
	case !stands(p):
		return name + " is up, and is kept from standing, by its application most likely."
	}
	switch g.Spec.Preemption.Policy {
	case v1.PreemptNever:
		return name + " is up, and takes over only when this one stops: preemption is Never."
	case v1.PreemptWhenStable:
		seconds := int32(0)
		if g.Spec.Preemption.StableSeconds != nil {
			seconds = *g.Spec.Preemption.StableSeconds
		}
		return fmt.Sprintf("%s is up, and takes over when it has been able to for %d s: preemption is WhenStable.", name, seconds)
	case v1.PreemptAlways:
	}
	return name + " is up, and is taking over."
}

func status(p *v1.Process) string {
	text := string(p.Status)
	if why := reason(p); why != "" {
		text += " (" + strings.TrimSuffix(why, ".") + ")"
	}
	return text
}

func next(g *v1.ElectionGroup, f *groupFacts) string {
	c := g.Status.Coordinator
	switch {
	case c == nil && len(f.candidates) == 0:
		return "Nobody stands."
	case c == nil:
		return fmt.Sprintf("%s (%d) is the highest that stands.", f.candidates[0].Pod, f.candidates[0].Priority)
	case len(f.candidates) == 0:
		return fmt.Sprintf("Nobody: if %s fails, nobody leads until it, or another that stands, is up.", c.Pod)
	case f.grants && f.spare == 0:
		return fmt.Sprintf("%s (%d) is the next in rank. But if %s fails, no majority is left, and nobody leads until one is.",
			f.candidates[0].Pod, f.candidates[0].Priority, c.Pod)
	}
	return fmt.Sprintf("If %s fails, %s (%d) leads.", c.Pod, f.candidates[0].Pod, f.candidates[0].Priority)
}

// losses says what the group can lose at once, whoever it is that fails.
func losses(g *v1.ElectionGroup, f *groupFacts) []string {
	if f.members == 0 {
		return []string{"There is nothing to lose yet."}
	}
	able := len(f.candidates)
	if g.Status.Coordinator != nil {
		able++
	}
	spare := max(0, able-1)
	var lines []string
	if f.grants {
		spare = min(spare, f.spare)
		lines = append(lines, fmt.Sprintf("Up: %d of %s. A coordinator needs %d (%s).", f.up, counted(f.members), f.needed, g.Spec.Safety.Mode))
	} else {
		lines = append(lines, fmt.Sprintf("Up: %d of %s. A coordinator needs nobody else (Available).", f.up, counted(f.members)))
	}
	switch {
	case f.grants && f.missing > 0 || able == 0:
	case able == 1:
		lines = append(lines, "Only one stands: if that is lost, nobody leads.")
	case spare == 0:
		lines = append(lines, "If one more is lost, whichever it is, nobody leads until it is back.")
	default:
		lines = append(lines, fmt.Sprintf("Whichever %s may be lost, and somebody still leads. With %d lost, that isn't certain.", upTo(spare), spare+1))
	}
	switch {
	case f.grants && f.members == 2:
		lines = append(lines, "Two members have a majority of two, so this group survives no loss: add a third one, which may have priority 0.")
	case !f.grants && f.members > 1:
		lines = append(lines, "If the network is divided, each side has a coordinator of its own: let what they write to refuse lower fencing tokens.")
	}
	if list := g.Status.MemberList; list != nil && list.State == v1.ListAdopting && f.grants {
		lines = append(lines, fmt.Sprintf("Until list %d has settled, it also takes a majority of list %d.", list.Version, list.Version-1))
	}
	return lines
}

func upTo(n int) string {
	if n == 1 {
		return "one member"
	}
	return fmt.Sprintf("%d members", n)
}

func hindrances(g *v1.ElectionGroup) []string {
	var lines []string
	if text := unseen(g); text != "" {
		lines = append(lines, text)
	}
	for _, c := range concerns(g) {
		lines = append(lines, fmt.Sprintf("%s is %s (%s): %s", c.Type, c.Status, c.Reason, sentence(c.Message)))
		if text := advice(g, v1.Reason(c.Reason)); text != "" {
			lines = append(lines, "  "+text)
		}
	}
	for i := range g.Status.Processes {
		if p := &g.Status.Processes[i]; p.Reason != "" || !up(p) {
			lines = append(lines, fmt.Sprintf("%s is %s.", p.Pod, status(p)))
		}
	}
	if len(lines) == 0 {
		return []string{"Nothing."}
	}
	return lines
}

func commands(g *v1.ElectionGroup) []string {
	lines := []string{
		fmt.Sprintf("kubectl conclave status %s %s", g.Name, in(g)),
		fmt.Sprintf("kubectl conclave watch %s %s", g.Name, in(g)),
		fmt.Sprintf("kubectl describe electiongroup %s %s", g.Name, in(g)),
	}
	if c := g.Status.Coordinator; c != nil {
		lines = append(lines, fmt.Sprintf("kubectl logs %s -c %s %s", c.Pod, v1.AgentContainer, in(g)))
	}
	return lines
}
