package live

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// Calls are machines that call functions when a fault begins and ends.
type Calls struct {
	Inject, Undo func(kind string, containers []string) error
}

func (Calls) notPossible(context.Context, string, string) string { return "" }

func (c Calls) inject(_ context.Context, f *machineFault) error {
	return c.Inject(f.kind, f.containers)
}

func (c Calls) undo(_ context.Context, f *machineFault) error { return c.Undo(f.kind, f.containers) }

// Who may restart a Deployment needs no permission for StatefulSets.
func TestRolloutNeedsPermissionForTheOwners(t *testing.T) {
	for kinds, want := range map[string]string{
		"StatefulSet StatefulSet": "get statefulsets in namespace bank, patch statefulsets in namespace bank",
		"ReplicaSet": "get deployments in namespace bank, get replicasets in namespace bank, patch " +
			"deployments in namespace bank",
		"DaemonSet Job": "get daemonsets in namespace bank, patch daemonsets in namespace bank",
		"":              "",
	} {
		pods := []*corev1.Pod{{}} // one without owner
		for kind := range strings.FieldsSeq(kinds) {
			owner := metav1.OwnerReference{Kind: kind, Controller: new(true)}
			pods = append(pods,
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", OwnerReferences: []metav1.OwnerReference{owner}}})
		}
		var got []string
		for _, p := range toRollOut(pods) {
			got = append(got, fmt.Sprint(p))
		}
		expect.Equalf(t, strings.Join(got, ", "), want, "%s", kinds)
	}
}
