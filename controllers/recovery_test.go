package controllers_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// The operator restores a Service that a user deletes. It owns the role label of a member even if another manager has
// applied it.
func TestObjectsAndLabelsAreRestored(t *testing.T) {
	e, o := newOperatedEnv(t)
	e.createSettledGroup(o)
	must.Succeed(t, e.client.Delete(t.Context(), e.service("ledger-leader")))
	e.eventually("the Service exists again",
		func() bool { return e.client.Get(t.Context(), e.key("ledger-leader"), &corev1.Service{}) == nil })
	label := v1.RoleLabel("ledger")
	other := coreapply.Pod("ledger-0", e.namespace).WithLabels(map[string]string{label: v1.RoleCoordinator})
	must.Succeed(t, e.client.Apply(t.Context(), other, client.FieldOwner("another-manager"), client.ForceOwnership))
	e.awaitRole("ledger-0", "ledger", v1.RoleFollower)
	if err := e.client.Apply(t.Context(), other, client.FieldOwner("another-manager")); !apierrors.IsConflict(err) {
		t.Errorf("got %v when another manager applies the label again, want a conflict", err)
	}
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Members = group.Spec.Members[1:] })
	e.awaitRole("ledger-0", "ledger", "")
}

// The operator doesn't label another pod that has the name by the time of the write.
func TestRoleLabelIsNotWrittenToReplacementPod(t *testing.T) {
	e := newEnv(t)
	var replaced sync.Once
	status := make(chan int, 1)
	var replace atomic.Bool
	o := e.startOperator(func(o *operator) {
		isLabelWrite := func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/pods/ledger-1") && replace.Load()
		}
		o.beforeWrite = func(r *http.Request) {
			if isLabelWrite(r) {
				replaced.Do(func() {
					e.deletePod("ledger-1")
					e.podWithoutAgent("ledger-1", func(*corev1.Pod) {})
				})
			}
		}
		o.afterWrite = func(r *http.Request, response *http.Response) {
			if isLabelWrite(r) {
				select {
				case status <- response.StatusCode:
				default: // Only the first one counts.
				}
			}
		}
	})
	e.createSettledGroup(o)
	replace.Store(true)
	e.elect("ledger", "ledger-1", 8)
	expect.Equalf(t, <-status, http.StatusUnprocessableEntity, "status for the label of the replaced pod")
	e.awaitCoordinator("ledger", "ledger-1", 8)
	e.awaitRole("ledger-2", "ledger", v1.RoleFollower)
}

// A group is deleted in the foreground: the garbage collector deletes the objects that the
// group owns, and then the group. The operator doesn't restore them, and the agents leave.
func TestGroupIsDeletedInTheForeground(t *testing.T) {
	e, o := newOperatedEnv(t)
	e.createSettledGroup(o)
	must.Succeed(t,
		e.client.Delete(t.Context(), e.group("ledger"), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	e.eventually("the agents have left", func() bool {
		return !e.inGroup("ledger-0", "ledger") && !e.inGroup("ledger-1", "ledger") && !e.inGroup("ledger-2", "ledger")
	})
	e.awaitRole("ledger-2", "ledger", "")
	expect.Equalf(t, value(t, o.metrics, "conclave_operator_groups"), 0, "groups in the metrics")
	owned := []client.Object{
		&corev1.Service{ObjectMeta: e.metadata("ledger-leader")},
		&discoveryv1.EndpointSlice{ObjectMeta: e.metadata("ledger-leader-conclave")},
	}
	for _, object := range owned {
		must.Succeed(t, e.client.Delete(t.Context(), object))
	}
	e.pod("ledger-3", "ledger") // triggers a reconcile
	e.awaitQuiet(o)
	for _, object := range owned {
		if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("%T: got %v, want it not restored for a group that is being deleted", object, err)
		}
	}
	if e.group("ledger").DeletionTimestamp == nil {
		t.Error("got no deletion timestamp, want the group to be deleting")
	}
}
