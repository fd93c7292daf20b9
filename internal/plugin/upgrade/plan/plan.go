// Package plan decides in which order the pods of groups are replaced, so that they get
// the agent of the installed operator, and when the next one may be.
//
// A pod may be replaced while each of its groups has a coordinator, and all of its other
// members are up and can vote. Pods that aren't ready come first: replacing them costs
// nothing. Pods that lead come last, so that the office is handed over only once, to an
// agent that is already new. All of it is decided from the current state, so an upgrade
// that was interrupted continues where it ended.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// State is the state of a namespace.
type State struct {
	// Image is that of the agent that new pods get.
	Image string
	// Group is the group whose pods are replaced, or empty for all groups.
	Group  string
	Groups []v1.ElectionGroup
	Pods   []corev1.Pod
	// Now is the time of the cluster.
	Now time.Time
}

// Step is the replacement of a pod.
type Step struct {
	Pod *corev1.Pod
	// HandOvers are the groups that the pod leads and in which another member can lead.
	HandOvers []*v1.ElectionGroup
	// Vacates are those that have no coordinator until the pod is back: no other member
	// may ever lead.
	Vacates []*v1.ElectionGroup
	// Members has how many members each group of the pod has.
	Members map[string]int

	// ready is how many pods of its controller are ready.
	ready int
}

// Plan returns the steps in the order in which they will be taken if nothing changes.
func (s *State) Plan() []Step {
	var steps []Step
	for i := range s.Pods {
		if p := &s.Pods[i]; s.isOutdated(p) && metav1.GetControllerOf(p) != nil {
			steps = append(steps, s.step(p))
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return steps
}

// Unowned returns the outdated pods that no controller would create again.
func (s *State) Unowned() (names []string) {
	for i := range s.Pods {
		if p := &s.Pods[i]; s.isOutdated(p) && metav1.GetControllerOf(p) == nil {
			names = append(names, p.Name)
		}
	}
	return names
}

// isOutdated reports whether a pod is to be replaced.
func (s *State) isOutdated(p *corev1.Pod) bool {
	image := membership.AgentImage(p)
	inScope := s.Group == "" || membership.NamesGroup(p, s.Group)
	return inScope && image != "" && image != s.Image && p.DeletionTimestamp == nil && !membership.Finished(p)
}

func (s *State) step(p *corev1.Pod) Step {
	step := Step{Pod: p, Members: map[string]int{}, ready: s.readyBeside(p)}
	for _, g := range s.groupsOf(p) {
		step.Members[g.Name] = len(g.Status.Processes)
		switch c := g.Status.Coordinator; {
		case c == nil || c.Pod != p.Name:
		case slices.ContainsFunc(g.Status.Processes, func(row v1.Process) bool { return row.Pod != p.Name && row.Priority > 0 }):
			step.HandOvers = append(step.HandOvers, g)
		default:
			step.Vacates = append(step.Vacates, g)
		}
	}
	return step
}

func (s *Step) rank() int {
	switch {
	case !isReady(s.Pod):
		return 0
	case len(s.HandOvers)+len(s.Vacates) == 0:
		return 1
	}
	return 2
}

// groupsOf returns the groups of which a pod is a member.
func (s *State) groupsOf(p *corev1.Pod) (all []*v1.ElectionGroup) {
	for i := range s.Groups {
		g := &s.Groups[i]
		if slices.ContainsFunc(g.Status.Processes, func(row v1.Process) bool { return row.Pod == p.Name }) {
			all = append(all, g)
		}
	}
	return all
}

// isSuccessor reports whether a process that is up, and whose row has this reason, succeeds a coordinator that stops.
func isSuccessor(reason v1.ProcessReason) bool {
	return reason == "" || reason == v1.ProcessHeldBack || reason == v1.ProcessHandOversPaused
}

// Obstacle returns why a step must wait, or "". It is a sentence without its period.
func (s *State) Obstacle(step *Step) string {
	for i := range s.Groups {
		// Its status doesn't have its members yet: perhaps it was created again.
		if g := &s.Groups[i]; g.Status.ObservedGeneration == 0 && membership.NamesGroup(step.Pod, g.Name) {
			return fmt.Sprintf("the operator has not reconciled group %s yet", g.Name)
		}
	}
	for _, g := range s.groupsOf(step.Pod) {
		if reason := cmp.Or(s.unhealthy(g, step.Pod.Name), s.withoutVote(g, step.Pod.Name)); reason != "" {
			return reason
		}
	}
	for _, g := range step.HandOvers {
		if !slices.ContainsFunc(g.Status.Processes, func(row v1.Process) bool {
			return row.Pod != step.Pod.Name && row.Priority > 0 && row.Status == v1.ProcessNormal && isSuccessor(row.Reason)
		}) {
			return fmt.Sprintf("no other member of group %s is ready to take over from %s", g.Name, step.Pod.Name)
		}
	}
	return ""
}

// Next returns the first step that need not wait, or else why the first one must.
func (s *State) Next(steps []Step) (next *Step, obstacle string) {
	for i := range steps {
		reason := s.Obstacle(&steps[i])
		if reason == "" {
			return &steps[i], ""
		}
		obstacle = cmp.Or(obstacle, reason)
	}
	return nil, obstacle
}

// Unsettled returns why the groups of a pod haven't recovered from its replacement, or "". A
// pod of another name becomes a member only after the former one has left.
func (s *State) Unsettled(step *Step) string {
	for i := range s.Groups {
		g := &s.Groups[i]
		before, affected := step.Members[g.Name]
		if !affected {
			continue
		}
		if reason := s.unhealthy(g, ""); reason != "" {
			return reason
		}
		if now := len(g.Status.Processes); now < before {
			return fmt.Sprintf("group %s has %d of %d members", g.Name, now, before)
		}
	}
	// Nothing else shows whether a pod that is no member is back.
	if now := s.readyBeside(step.Pod); len(step.Members) == 0 && now < step.ready {
		return fmt.Sprintf("%s %s has %d of %d ready pods", metav1.GetControllerOf(step.Pod).Kind, metav1.GetControllerOf(step.Pod).Name, now, step.ready)
	}
	return ""
}

// readyBeside returns how many pods of the controller of a pod are ready.
func (s *State) readyBeside(p *corev1.Pod) (ready int) {
	controller := metav1.GetControllerOf(p)
	for i := range s.Pods {
		if c := metav1.GetControllerOf(&s.Pods[i]); c != nil && c.UID == controller.UID && isReady(&s.Pods[i]) && s.Pods[i].DeletionTimestamp == nil {
			ready++
		}
	}
	return ready
}

// unhealthy returns why a group must not lose a member now, or "". It ignores one member.
func (s *State) unhealthy(g *v1.ElectionGroup, except string) string {
	for i := range g.Status.Processes {
		if row := &g.Status.Processes[i]; row.Pod != except {
			if reason := s.down(row); reason != "" {
				return fmt.Sprintf("member %s of group %s %s", row.Pod, g.Name, reason)
			}
		}
	}
	if meta.IsStatusConditionTrue(g.Status.Conditions, string(v1.ConditionAvailable)) {
		return ""
	}
	return fmt.Sprintf("group %s isn't %s; for the reason, run: kubectl conclave status %[1]s -n %[3]s", g.Name, v1.ConditionAvailable, g.Namespace)
}

// down returns why a member isn't up, or "". The pod is examined, too: the status follows it
// with a delay.
func (s *State) down(row *v1.Process) string {
	at := slices.IndexFunc(s.Pods, func(p corev1.Pod) bool { return p.Name == row.Pod })
	switch {
	case at < 0:
		return "has no pod"
	case s.Pods[at].DeletionTimestamp != nil:
		return "is being deleted"
	case !isReady(&s.Pods[at]):
		return "isn't ready"
	case row.Status != v1.ProcessCoordinator && row.Status != v1.ProcessNormal:
		return "is " + string(row.Status)
	case !isSuccessor(row.Reason) && row.Reason != v1.ProcessNotEligible:
		return "is " + string(row.Reason)
	}
	return ""
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
