package live

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// slow is after how long a run reports what it still waits for.
func (r *Run) slow() time.Duration { return min(time.Minute, r.Timeout/2) }

// reportSlow prints what the subject lacks, what the API server has, and the latest Events. If the API server has
// everything, the watches of the observer are behind, and not the subject.
func (r *Run) reportSlow(ctx context.Context) {
	r.Printf("%s hasn't settled after %s: %s", r.Subject, r.slow(), describe(r.problems()))
	var endpointSlices discoveryv1.EndpointSliceList
	var events corev1.EventList
	namespace := client.InNamespace(r.Subject.namespace())
	err := errors.Join(r.Client.List(ctx, &endpointSlices, namespace), r.Client.List(ctx, &events, namespace))
	if err != nil {
		r.Printf("  cannot list: %v", err)
	}
	for i := range endpointSlices.Items {
		r.Printf("  %v", &endpointSlices.Items[i])
	}
	at := func(e *corev1.Event) time.Time { return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time) }
	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return at(&b).Compare(at(&a)) })
	for i := range events.Items[:min(len(events.Items), 20)] {
		e := &events.Items[i]
		r.Printf("  %s %s %s: %s", at(e).UTC().Format(time.RFC3339), e.InvolvedObject.Name, e.Reason, e.Message)
	}
}
