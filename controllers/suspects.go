package controllers

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// verifySuspects checks the connections to the agents that other agents report as crashed. The
// reports of agents on a node that was lost would count for seconds otherwise: as long as they are
// the majority of those that the operator hears, the status would name a coordinator that was lost.
func (r *Reconciler) verifySuspects(group *v1.ElectionGroup) {
	key := client.ObjectKeyFromObject(group)
	pod := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: key.Namespace, Name: name}
	}
	reports := r.agents.Reports(key)
	for name, report := range reports {
		if connection, _ := r.agents.Connection(pod(name)); !connection.Connected || report.Report.UID != string(group.UID) {
			continue
		}
		for i := range report.Report.Processes {
			row := &report.Report.Processes[i]
			if _, reports := reports[row.Name]; reports && row.Name != name && row.Status == string(v1.ProcessCrashed) {
				r.agents.Verify(pod(row.Name))
			}
		}
	}
}
