package e2e

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// namespace enforces the restricted Pod Security Standard, which our images must meet.
const namespace = "conclave-e2e"

// TestInCluster runs most tests that need a cluster as subtests, which share the operator.
func TestInCluster(t *testing.T) {
	c := newCluster(t)
	// It waits for a signal.
	pause, err := filepath.Abs(filepath.Join(repositoryRoot, "hack", "kubernetes"))
	must.Succeed(t, err)
	c.load(buildImage(t, "./pause", "conclave/pause:e2e", "-source", pause))
	c.load(buildImage(t, "./cmd/kubectl-conclave", "conclave/kubectl-conclave:e2e"))
	c.createNamespace(namespace)
	for _, part := range []struct {
		name string
		test func(*cluster)
	}{
		{"Pod Security rejects pods that are not restricted", testPodSecurity},
		{"the simulator sends the number of messages in the textbook", testSimulate},
		{"the operator coordinates the samples despite faults", testOperator},
		{"the pods of the example elect a coordinator despite faults", testExample},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(c.withT(t)) })
	}
}

// testPodSecurity checks that Pod Security is enforced. Otherwise, it would prove nothing that our pods run.
func testPodSecurity(c *cluster) {
	output, err := c.tryKubectl("run", "anything", "--namespace", namespace, "--image", "any/thing:1", "--dry-run=server")
	if err == nil {
		c.t.Errorf("a pod without a security context was accepted: %s", output)
	}
	requireContains(c.t, output, `violates PodSecurity "restricted`)
}

func testSimulate(c *cluster) {
	c.kubectl("apply", "-f", "testdata/simulate.yaml")
	c.awaitCompletion("simulate")
	type outcome struct {
		Algorithm   string
		Processes   int
		Coordinator int
		Agreed      bool
		Total       int
		Messages    map[string]int
	}
	var got outcome
	log := c.kubectl("logs", "--namespace", namespace, "simulate")
	if err := json.Unmarshal([]byte(log), &got); err != nil {
		c.t.Fatalf("the pod's log must be JSON (%v), got: %s", err, log)
	}
	want := outcome{
		Algorithm: "Bully", Processes: 10, Coordinator: 9, Agreed: true, Total: 43,
		Messages: map[string]int{"ELECTION": 20, "OK": 15, "COORDINATOR": 8},
	}
	if !reflect.DeepEqual(got, want) {
		c.t.Errorf("got log %s, want %+v", log, want)
	}
}
