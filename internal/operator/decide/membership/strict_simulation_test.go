package membership

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// The part of the simulation that is about Strict mode: pods that run on although the API
// server considers them failed and deleted.

func (s *simulation) strict() bool { return s.group.Spec.Safety.Mode == v1.Strict }

// disrupt ends a pod, or in Strict mode, may also remove its node.
func (s *simulation) disrupt(name string) {
	switch {
	case !s.strict():
		s.endPod(name)
	case s.rng.IntN(2) == 0:
		s.removeNode(name)
	default:
		s.stopPod(name)
	}
}

// removeNode removes the node of a pod that is cut off, and runs on. The garbage collector
// of pods marks the pod as failed, and force-deletes it.
func (s *simulation) removeNode(name string) {
	pod := s.pods[name].DeepCopy()
	pod.Status.Phase = corev1.PodFailed
	pod.DeletionTimestamp = new(metav1.NewTime(s.now))
	s.pods[name] = pod
	if a := s.agent(name); a != nil {
		a.connected = false
	}
}

// stopPod stops a pod, and its kubelet reports that.
func (s *simulation) stopPod(name string) {
	pod := s.pods[name].DeepCopy()
	pod.Status.Phase = corev1.PodFailed
	pod.DeletionTimestamp = new(metav1.NewTime(s.now))
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{agentStatus(terminated)}
	s.pods[name] = pod
	if a := s.agent(name); a != nil {
		a.ended = s.now
		delete(s.agents, pod.UID)
	}
}

// release removes the finalizer of pods. They are being deleted, so they disappear.
func (s *simulation) release(pods []*corev1.Pod) {
	for _, pod := range pods {
		now := s.pods[pod.Name]
		if now == nil || now.UID != pod.UID {
			continue
		}
		if s.agents[pod.UID] != nil {
			s.t.Errorf("%s was released, but its agent runs", pod.Name)
		}
		delete(s.pods, pod.Name)
	}
}
