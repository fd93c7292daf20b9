package live

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conclave-dev/conclave/internal/chaos"
)

// The kubelet restarts a container that has ended for the first time at once, and then after 10 s, 20 s and so on, up
// to 5 min. It forgets that when the container has run for 10 min. This is a property of the kubelet, not of the group.
// So a pod whose container would be restarted late is replaced before its container is killed again.
const (
	restartsMax     = 2
	restartsExpired = 10 * time.Minute
)

// replaceRestarted replaces the pod whose containers a fault of this kind would kill, if the kubelet would restart them
// late. Another pod may be coordinator then.
func (r *Run) replaceRestarted(ctx context.Context, kind string) error {
	if kind != chaos.KillAgent && kind != chaos.KillApp {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	for range r.result.Members {
		targets := inspect(r.observer,
			func(_ *chaos.Record, s *chaos.State) []chaos.PodState { return chaos.Victims(kind, s) })
		if len(targets) == 0 {
			return nil // The fault will be refused.
		}
		pod := r.observer.pod(targets[0].UID)
		if pod == nil || metav1.GetControllerOf(pod) == nil || !restartsLate(pod, kind, time.Now()) {
			return nil
		}
		r.Printf("replacing pod %s before the next fault (%s): the kubelet would restart its container late", pod.Name, kind)
		if _, err := r.deletePods(ctx, targets[:1]); err != nil {
			return err
		}
		r.observer.Await(ctx, func(_ *chaos.Record, s *chaos.State) bool {
			gone := !slices.ContainsFunc(s.Pods, func(p chaos.PodState) bool { return p.UID == targets[0].UID })
			return gone && r.isSettled(s)
		})
	}
	return nil
}

// restartsLate reports whether the kubelet would restart a container late that a fault of this kind kills.
func restartsLate(pod *corev1.Pod, kind string, now time.Time) bool {
	return slices.ContainsFunc(affectedContainers(pod, kind), func(s corev1.ContainerStatus) bool {
		return s.RestartCount >= restartsMax && now.Sub(s.State.Running.StartedAt.Time) < restartsExpired
	})
}
