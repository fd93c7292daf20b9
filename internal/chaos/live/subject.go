package live

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/chaos"
)

// Subject is what a run tests: a Group, or any other Leader.
type Subject interface {
	// String names it in messages.
	fmt.Stringer
	namespace() string
	// selected lists the pods that can be candidates, and isCandidate chooses among them.
	selected() []client.ListOption
	isCandidate(pod *corev1.Pod) bool
	// observe observes objects beside the pods until ctx ends, and observePod a pod whose containers run.
	observe(ctx context.Context, o *Observer)
	observePod(ctx context.Context, o *Observer, agent chaos.Agent)
	isObservable(pod *corev1.Pod) bool
	// permissions are those that this takes.
	permissions() []permission
	// describe sets what the result says of it, complete completes a state of pods, and begin begins a record after
	// another one.
	describe(result *chaos.Result)
	complete(o *Observer, s *chaos.State)
	begin(before, after *chaos.Record, s *chaos.State)
	// hasSides: each side of a partition may have a leader.
	hasSides() bool
	// linger is how long a leader remains frozen while another one leads.
	linger() time.Duration
}

// candidates returns the pods of a subject that haven't finished.
func candidates(ctx context.Context, c client.Client, subject Subject) (all []*corev1.Pod, err error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, append(subject.selected(), client.InNamespace(subject.namespace()))...); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if pod := &list.Items[i]; subject.isCandidate(pod) && !isFinished(pod) {
			all = append(all, pod)
		}
	}
	return all, nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
