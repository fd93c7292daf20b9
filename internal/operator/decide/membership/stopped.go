package membership

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
)

// Gone reports whether a member no longer has a pod that can vote.
//
// In Available and Majority, that is what the API server says about the pod. But the API server may be wrong: a
// force-deleted pod, or one whose node was removed, may still run on a node that is cut off. In Strict, such a pod
// counts as gone only if it is known to have stopped (docs/adr/0014-known-to-have-stopped.md).
func Gone(f *facts.Facts, member string) bool {
	pod := f.Pods[member]
	switch {
	case pod == nil: // In Strict, the finalizer retains the pod until it has stopped.
		return true
	case pod.Spec.NodeName == "" && pod.Status.Phase == corev1.PodPending:
		return true // It has not run. When it does, it begins with the list in force.
	case f.Group.Spec.Safety.Mode != v1.Strict:
		return Finished(pod)
	case !isHeld(f.Group, pod) && !agentStarted(pod):
		return true // It has no certificate. It begins with the list in force, too.
	}
	return isKnownStopped(f, pod)
}

// isKnownStopped reports whether a pod is known to have stopped.
func isKnownStopped(f *facts.Facts, pod *corev1.Pod) bool {
	return hasStopped(pod, f.Nodes[pod.Spec.NodeName]) || isConfirmed(f.Group, pod)
}

func isHeld(group *v1.ElectionGroup, pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, v1.StopFinalizer(group.Name))
}

// hasStopped reports whether it is proven that no container of a pod runs, or will run.
func hasStopped(pod *corev1.Pod, node *corev1.Node) bool {
	// The phase alone isn't from the kubelet: the garbage collector of pods sets it to Failed when it deletes a pod whose
	// node was removed. It doesn't change the containers' states.
	if Finished(pod) && AgentStatus(pod).State.Terminated != nil && !anyContainerRuns(pod) {
		return true
	}
	if pod.DeletionTimestamp == nil {
		return false
	}
	// The API server assigns no node to a pod that is being deleted.
	return pod.Spec.NodeName == "" || isOutOfService(node)
}

// agentStarted reports whether the agent of a pod has ever run.
func agentStarted(pod *corev1.Pod) bool {
	s := AgentStatus(pod)
	return s.State.Running != nil || s.State.Terminated != nil || s.RestartCount > 0
}

// AgentStatus returns the status of a pod's agent, without a state if the kubelet hasn't reported one.
func AgentStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.InitContainerStatuses {
		if s := &pod.Status.InitContainerStatuses[i]; s.Name == v1.AgentContainer {
			return s
		}
	}
	return &corev1.ContainerStatus{}
}

func anyContainerRuns(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(s corev1.ContainerStatus) bool {
			return s.State.Running != nil
		})
}

// isOutOfService reports whether an administrator has declared that nothing runs on a node anymore. As for Kubernetes'
// own garbage collector, the taint doesn't count while the node is ready.
func isOutOfService(node *corev1.Node) bool {
	return node != nil && !NodeReady(node) &&
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// NodeReady reports whether the kubelet of a node has said lately that it is ready.
func NodeReady(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// stopReportDelay is the time that the kubelet has for its report after the end of the
// grace period, before the status asks users for a confirmation.
const stopReportDelay = 10 * time.Second

// holds returns what has to change about the finalizer of the group: the pods that need
// it, and those from which it has to be removed.
//
// A pod that has run no agent needs none: it has never voted. The identity service adds the finalizer before it issues
// a certificate, so holds only adds it if the group was created, or became Strict, after that.
func (f *planner) holds() (hold, release []*corev1.Pod) {
	strict := f.Group.Spec.Safety.Mode == v1.Strict
	for _, pod := range f.Pods {
		held, stopped := isHeld(f.Group, pod), isKnownStopped(f.Facts, pod)
		switch {
		case held && (stopped || !strict):
			release = append(release, pod)
		case !held && strict && !stopped && pod.DeletionTimestamp == nil && f.mayVote(pod):
			hold = append(hold, pod)
		}
	}
	byName := func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(hold, byName)
	slices.SortFunc(release, byName)
	return hold, release
}

// mayVote reports whether the agent of a pod may have a certificate for the group.
func (f *planner) mayVote(pod *corev1.Pod) bool {
	return HasAgent(pod) && NamesGroup(pod, f.Group.Name) && (f.Accepts(pod.Name) || agentStarted(pod))
}

// unknownStops returns the deleted pods that may still run, although the kubelet has had the time to report their end.
// It also returns when another pod becomes one of them, or zero.
func (f *planner) unknownStops() (pods []*corev1.Pod, next time.Time) {
	if f.Group.Spec.Safety.Mode != v1.Strict {
		return nil, next
	}
	for _, pod := range f.Pods {
		if !isHeld(f.Group, pod) || pod.DeletionTimestamp == nil || isKnownStopped(f.Facts, pod) {
			continue
		}
		// The API server adds the grace period to the time of the deletion.
		overdue := pod.DeletionTimestamp.Add(stopReportDelay)
		if f.Now.Before(overdue) {
			next = facts.Earliest(next, overdue)
		} else {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods, next
}
