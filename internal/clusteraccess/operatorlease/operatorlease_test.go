package operatorlease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
)

// TestObserve: each step is a reading of the Lease at a second, which was renewed at another
// second of the clock of the operator's node.
func TestObserve(t *testing.T) {
	start := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	type reading struct{ at, renewed, silentSince int } // silentSince is 0 while the operator runs
	for name, readings := range map[string][]reading{
		"it is renewed": {{100, 99, 0}, {105, 104, 0}, {110, 109, 0}, {140, 139, 0}},
		"it ends": {
			{100, 99, 0}, {105, 104, 0}, {108, 104, 0}, {110, 104, 0}, {111, 104, 105}, {300, 104, 105},
		},
		"it ends, and another replica leads":  {{100, 99, 0}, {110, 99, 100}, {118, 117, 0}, {123, 122, 0}},
		"it is down, and starts":              {{100, 30, 30}, {105, 30, 30}, {110, 110, 0}, {120, 119, 0}},
		"the other clock is two minutes late": {{300, 180, 180}, {305, 185, 0}, {310, 190, 0}},
		"the other clock is a day ahead":      {{100, 86_500, 0}, {105, 86_505, 0}, {110, 86_505, 0}, {111, 86_505, 105}},
	} {
		var o operatorlease.Observer
		for _, r := range readings {
			second := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
			lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(
				metav1.NewMicroTime(second(r.renewed)))}}
			want := time.Time{}
			if r.silentSince != 0 {
				want = second(r.silentSince)
			}
			if got := o.Observe(lease, second(r.at)); !got.Equal(want) {
				t.Errorf("%s: at %d: got silence since %s, want %s", name, r.at, got, want)
			}
		}
	}
	if got := new(operatorlease.Observer).Observe(&coordinationv1.Lease{}, start); !got.IsZero() {
		t.Errorf("a Lease that was never renewed: got silence since %s, want none yet", got)
	}
}

// TestSilenceOfAPIServer: what was read before grows old while the API server doesn't answer. If it refuses
// to show the Lease, nothing is known.
func TestSilenceOfAPIServer(t *testing.T) {
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro())}}
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, operatorlease.Name, errors.New("no right"))
	for name, c := range map[string]struct {
		err    error
		silent bool
	}{
		"no answer": {errors.New("connection refused"), true},
		"a refusal": {refusal, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			reading, silent, failed := 0, false, error(nil)
			operatorlease.Watch(ctx, func(context.Context) (*coordinationv1.Lease, error) {
				if reading++; reading == 1 {
					return lease, nil
				}
				return nil, c.err
			}, time.Now, func(since time.Time, err error) { silent, failed = !since.IsZero(), err })
			if silent != c.silent || !errors.Is(failed, c.err) {
				t.Errorf("%s: got silent %t, %v", name, silent, failed)
			}
		})
	}
}
