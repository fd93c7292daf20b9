package live_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestGroupHasOneRunAtATime(t *testing.T) {
	w := newWorld(t, bugs{})
	unlock, err := w.run().Lock(t.Context())
	must.Succeed(t, err)
	if _, err := w.run().Lock(t.Context()); err == nil || !strings.Contains(err.Error(), "another chaos test of group ledger is under way") {
		t.Errorf("got error %v, want one about the other test", err)
	}
	unlock()
	again, err := w.run().Lock(t.Context())
	must.Succeedf(t, err, "after the first run has ended")
	again()
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "conclave-chaos-ledger"}, &coordinationv1.Lease{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want no Lease after the run", err)
	}
}

// TestKilledRunDoesNotLockForever: its Lease has expired. The run that takes it over doesn't end a third one's.
func TestKilledRunDoesNotLockForever(t *testing.T) {
	w := newWorld(t, bugs{})
	if _, err := w.run().Lock(t.Context()); err != nil { // It isn't unlocked.
		t.Fatal(err)
	}
	var lease coordinationv1.Lease
	key := client.ObjectKey{Namespace: w.namespace, Name: "conclave-chaos-ledger"}
	must.Succeed(w.t, w.Get(t.Context(), key, &lease))
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-2 * time.Minute)))
	must.Succeed(w.t, w.Update(t.Context(), &lease))
	unlock, err := w.run().Lock(t.Context())
	must.Succeed(t, err)
	must.Succeed(w.t, w.Get(t.Context(), key, &lease))
	lease.Spec.HolderIdentity = new("third")
	must.Succeed(w.t, w.Update(t.Context(), &lease))
	unlock()
	must.Succeed(w.t, w.Get(t.Context(), key, &lease))
}

func TestRunWithoutPermissionForLeasesSaysSo(t *testing.T) {
	w := newWorld(t, bugs{})
	r := w.run()
	var said string
	r.Printf = func(format string, args ...any) { said = fmt.Sprintf(format, args...) }
	r.Client = interceptor.NewClient(r.Client, interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, ok := o.(*coordinationv1.Lease); ok {
				return apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, o.GetName(), nil)
			}
			return api.Create(ctx, o, options...)
		},
	})
	unlock, err := r.Lock(t.Context())
	must.Succeed(t, err)
	unlock()
	expect.Containsf(t, said, "permission to create, get, update and delete leases", "a line about the permission")
}
