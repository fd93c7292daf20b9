package agents

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// checkTraces repeats the elections that the agents of a cluster recorded before they were
// killed, in all groups.
func checkTraces(t *testing.T, cluster *agentcluster.Cluster) {
	t.Helper()
	allSteps, allTenures := 0, 0
	for _, group := range cluster.Groups() {
		steps, tenures, err := cluster.CheckTraces(group)
		if err != nil {
			t.Errorf("trace of group %s: %v", group, err)
		} else if tenures == 0 {
			t.Errorf("trace of group %s: got no tenure in %d steps", group, steps)
		}
		allSteps, allTenures = allSteps+steps, allTenures+tenures
	}
	t.Logf("repeated %d steps with %d tenures", allSteps, allTenures)
}
