package describe

import (
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Explain writes why the coordinator is the coordinator, which member is next, which
// failures the group tolerates, and its problems.
func Explain(w io.Writer, g *v1.ElectionGroup, now time.Time) {
	a := analyze(g)
	sections := []struct {
		title string
		lines []string
	}{
		{"Coordinator", append([]string{coordinator(g, now)}, election(g)...)},
		{"Reason", electionReason(g, &a, now)},
		{"Next coordinator", []string{nextCoordinator(g, &a)}},
		{"Failure tolerance", failureTolerance(g, &a)},
		{"Problems", problems(g, now)},
		{"Further commands", commands(g)},
	}
	for i, section := range sections {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, section.title)
		for _, line := range section.lines {
			fmt.Fprintln(w, "  "+line)
		}
	}
}

func coordinator(g *v1.ElectionGroup, now time.Time) string {
	if c := g.Status.Coordinator; c != nil {
		return fmt.Sprintf("%s has been the coordinator of %s/%s in term %d since %s (%s).", c.Pod,
			g.Namespace, g.Name, c.Term,
			c.ElectedAt.UTC().Format("2006-01-02 15:04:05.000 MST"), age(c.ElectedAt.Time, now))
	}
	text := fmt.Sprintf("%s/%s has no coordinator", g.Namespace, g.Name)
	var since time.Time
	if h := g.Status.History; len(h) > 0 && h[0].Until != nil {
		since = h[0].Until.Time // Available may be False since then, or for longer.
	} else if c := condition(g, v1.ConditionAvailable); c != nil && c.Status == metav1.ConditionFalse {
		since = c.LastTransitionTime.Time
	}
	if !since.IsZero() {
		text = fmt.Sprintf("%s/%s has had no coordinator for %s", g.Namespace, g.Name, age(since, now))
	}
	if g.Status.Term > 0 {
		text += fmt.Sprintf(". The last term was %d", g.Status.Term)
	}
	return text + "."
}

// election describes how the last tenure ended, if there was another one before.
func election(g *v1.ElectionGroup) []string {
	if h := g.Status.History; g.Status.Coordinator != nil && len(h) > 1 {
		return []string{sentence(v1.DescribeElection(h))}
	}
	return nil
}

// electionReason explains why the coordinator, or no member, was elected.
func electionReason(g *v1.ElectionGroup, a *analysis, now time.Time) []string {
	c := g.Status.Coordinator
	if c == nil {
		return []string{noCoordinatorReason(g, a)}
	}
	switch {
	case a.members == 1:
		return []string{"It is the only member."}
	case len(a.above) == 0:
		return []string{fmt.Sprintf("Its priority, %d, is the highest of all %s.", c.Priority, Count(a.members, "member"))}
	}
	const most = 5
	lines := []string{fmt.Sprintf("Its priority is %d. Members with a higher priority:", c.Priority)}
	for i := range a.above {
		if i == most {
			lines = append(lines, fmt.Sprintf("- %s not shown", Count(len(a.above)-most, "member")))
			break
		}
		lines = append(lines, "- "+notElectedReason(g, &a.above[i], now))
	}
	return lines
}

func noCoordinatorReason(g *v1.ElectionGroup, a *analysis) string {
	c := condition(g, v1.ConditionAvailable)
	switch {
	case a.members == 0 && c != nil && c.Status == metav1.ConditionFalse:
		return "The operator reports: " + sentence(c.Message)
	case a.members == 0:
		return "The agents have not received a member list yet."
	case a.needsMajority && a.missing > 0:
		return fmt.Sprintf("A coordinator needs %d of %s. Up: %d.", a.majority, Count(a.members, "member"), a.up)
	case len(a.candidates) == 0 && (c == nil || c.Reason != string(v1.ReasonNoEligibleMember)):
		return "No member that is up is eligible: each has priority 0, is being deleted, or is ineligible because of its " +
			"application or the operator."
	case c != nil && c.Message != "":
		return "The operator reports: " + sentence(c.Message)
	}
	return "An election is in progress, or the operator has not received its result."
}

// notElectedReason explains why a member is not the coordinator although its priority is higher than the coordinator's.
func notElectedReason(g *v1.ElectionGroup, p *v1.Process, now time.Time) string {
	name := fmt.Sprintf("%s (%d)", p.Pod, p.Priority)
	switch {
	case !isUp(p):
		return name + " is " + status(p) + "."
	case p.Reason == v1.ProcessPodTerminating:
		return name + " is being deleted."
	case p.Reason == v1.ProcessHeldBack || p.Reason == v1.ProcessHandOversPaused:
		return strings.TrimSpace(fmt.Sprintf("%s is up, and held back. %s", name, sentence(p.Message)))
	case !isEligible(p) && p.Message != "":
		return name + " is up, but not eligible. " + sentence(p.Message)
	case !isEligible(p):
		return name + " is up, but not eligible, probably because of its application."
	case g.Spec.Preemption.Policy == v1.PreemptNever:
		return name + " is up, and takes over only when the coordinator stops: preemption is Never."
	}
	text := name + " is up, and is taking over."
	stable := g.Spec.Preemption.Stable()
	if g.Spec.Preemption.Policy == v1.PreemptWhenStable {
		text = fmt.Sprintf("%s is up, and takes over when it has been eligible for %g s: preemption is WhenStable.",
			name, stable.Seconds())
	}
	// The status has no reason HeldBack any more when the penalty of a member is over, but the agents still know of it.
	if long := control.LongTenure(stable); now.Sub(g.Status.Coordinator.ElectedAt.Time) < long {
		text += fmt.Sprintf(" If its last tenures were short, it waits until the coordinator has led for %s.", long)
	}
	return text
}

func status(p *v1.Process) string {
	text := string(p.Status)
	if r := Reason(p); r != "" {
		text += " (" + strings.TrimSuffix(r, ".") + ")"
	}
	return text
}

func nextCoordinator(g *v1.ElectionGroup, a *analysis) string {
	c := g.Status.Coordinator
	if len(a.candidates) == 0 {
		if c == nil {
			return "No member is eligible."
		}
		return fmt.Sprintf("None: if %s fails, there is no coordinator until an eligible member is up.", c.Pod)
	}
	next := &a.candidates[0]
	switch {
	case c == nil:
		return fmt.Sprintf("%s (%d) has the highest priority of the eligible members.", next.Pod, next.Priority)
	case a.needsMajority && a.spare == 0:
		return fmt.Sprintf(
			"%s (%d) has the next priority. But if %s fails, there is no majority, and no coordinator until there is one.",
			next.Pod, next.Priority, c.Pod)
	}
	return fmt.Sprintf("If %s fails, %s (%d) becomes coordinator.", c.Pod, next.Pod, next.Priority)
}

// failureTolerance describes how many members can fail at once, whichever they are.
func failureTolerance(g *v1.ElectionGroup, a *analysis) []string {
	if a.members == 0 {
		return []string{"There are no members yet."}
	}
	electable := len(a.candidates)
	if g.Status.Coordinator != nil {
		electable++
	}
	spare := max(0, electable-1)
	var lines []string
	if a.needsMajority {
		spare = min(spare, a.spare)
		lines = append(lines, fmt.Sprintf("Up: %d of %s. A coordinator needs %d (%s).", a.up, Count(a.members, "member"),
			a.majority, g.Spec.Safety.Mode))
	} else {
		lines = append(lines,
			fmt.Sprintf("Up: %d of %s. A coordinator needs no other member (Available).", a.up, Count(a.members, "member")))
	}
	switch {
	case a.needsMajority && a.missing > 0 || electable == 0:
	case electable == 1:
		lines = append(lines, "Only one member is eligible: if it fails, there is no coordinator.")
	case spare == 0:
		lines = append(lines, "If one more member fails, whichever it is, there is no coordinator until it is up again.")
	default:
		lines = append(lines,
			fmt.Sprintf("If any %s, there is still a coordinator. If %d fail, there may be none.", fail(spare), spare+1))
	}
	if a.members > 1 && (spare > 0 || electable == 1) {
		lines = append(lines, placeTolerance(g, "node", nodeOf)...)
		if len(Zones(g)) > 1 {
			lines = append(lines, placeTolerance(g, "zone", zoneOf)...)
		}
	}
	switch {
	case a.needsMajority && a.members == 2:
		lines = append(lines, "The majority of two members is two, so this group tolerates no failure: add a third member, "+
			"which may have priority 0.")
	case !a.needsMajority && a.members > 1:
		lines = append(lines, "In a network partition, each side has its own coordinator: the systems that a coordinator "+
			"writes to should reject lower fencing tokens.")
	}
	if list := g.Status.Protocol.MemberList; list != nil && list.Previous != nil && list.State == v1.ListAdopting &&
		a.needsMajority {
		lines = append(lines, fmt.Sprintf("Until list %d has settled, a coordinator also needs a majority of list %d.",
			list.Version, list.Previous.Version))
	}
	return lines
}

func fail(n int) string {
	if n == 1 {
		return "one member fails"
	}
	return fmt.Sprintf("%d members fail", n)
}

func problems(g *v1.ElectionGroup, now time.Time) []string {
	var lines []string
	for _, p := range Problems(g) {
		lines = append(lines, p.lines("")...)
	}
	if text := DownTogether(g); text != "" {
		lines = append(lines, text)
	}
	for i := range g.Status.Processes {
		if p := &g.Status.Processes[i]; p.Reason != "" || !isUp(p) {
			lines = append(lines, fmt.Sprintf("%s is %s.", p.Pod, status(p)))
		}
	}
	for _, p := range Warnings(g, now) {
		lines = append(lines, fmt.Sprintf("Warning (%s): %s", p.Reason, p.Message), "  "+p.Advice)
	}
	if len(lines) == 0 {
		return []string{"None."}
	}
	return lines
}

func commands(g *v1.ElectionGroup) []string {
	lines := []string{
		fmt.Sprintf("kubectl conclave status %s %s", g.Name, namespaceFlag(g)),
		fmt.Sprintf("kubectl events --watch --for electiongroup/%s %s", g.Name, namespaceFlag(g)),
		fmt.Sprintf("kubectl describe electiongroup %s %s", g.Name, namespaceFlag(g)),
	}
	if c := g.Status.Coordinator; c != nil {
		lines = append(lines, fmt.Sprintf("kubectl logs %s -c %s %s", c.Pod, v1.AgentContainer, namespaceFlag(g)))
	}
	return lines
}
