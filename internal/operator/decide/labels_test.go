package decide

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// The pod of a coordinator that a Deployment owns is deleted last, unless its author has set another cost. It may lead
// several groups.
func TestDeletionCostOfCoordinator(t *testing.T) {
	const ledger = v1.RoleLabelPrefix + "ledger"
	for name, c := range map[string]struct {
		ofDeployment bool
		audit        string // its role in another group
		cost         string
		role         string
		want         any
		change       bool
	}{
		"becomes the coordinator":   {true, "", "", v1.RoleCoordinator, v1.CoordinatorDeletionCost, true},
		"of a StatefulSet":          {false, "", "", v1.RoleCoordinator, nil, false},
		"with a cost of its author": {true, "", "-7", v1.RoleCoordinator, nil, false},
		"follows, with such a cost": {true, "", "-7", v1.RoleFollower, nil, false},
		"follows":                   {true, "", v1.CoordinatorDeletionCost, v1.RoleFollower, nil, true},
		"leads another":             {true, v1.RoleCoordinator, v1.CoordinatorDeletionCost, v1.RoleFollower, nil, false},
		"leads another from now on": {true, v1.RoleCoordinator, "", "", v1.CoordinatorDeletionCost, true},
		"leads no group":            {true, v1.RoleFollower, v1.CoordinatorDeletionCost, "", nil, true},
	} {
		pod := newPod("a")
		if pod.Labels[v1.RoleLabelPrefix+"audit"] = c.audit; c.ofDeployment {
			pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "x"
		}
		if c.cost != "" {
			pod.Annotations[corev1.PodDeletionCost] = c.cost
		}
		got, change := DeletionCost(pod, ledger, c.role)
		if got != c.want || change != c.change {
			t.Errorf("%s: got cost %v, change %t, want %v, %t", name, got, change, c.want, c.change)
		}
		pod.Labels[ledger] = c.role
		expect.Equalf(t, HasRole(pod, ledger, c.role), !c.change, "%s: has the role and its cost", name)
	}
}
