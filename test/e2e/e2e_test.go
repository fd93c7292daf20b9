package e2e

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// namespace enforces Pod Security's restricted level: our images must get along with that.
const namespace = "conclave-e2e"

// TestInCluster needs a cluster, and brings one up if it's to be its own; so all that needs one is a part of it.
func TestInCluster(t *testing.T) {
	kind := os.Getenv("CONCLAVE_E2E")
	if kind == "" {
		t.Skip("needs a cluster, and nobody asked for one: make test-e2e does")
	}
	c := newCluster(t, kind)
	c.load(makeImage(t, "./cmd/kubectl-conclave", "conclave/kubectl-conclave:e2e"))
	c.makeNamespace(namespace)
	for _, part := range []struct {
		name string
		test func(*cluster)
	}{
		{"the namespace refuses what isn't restricted", testRefusal},
		{"an election in a pod takes the messages that the textbook says", testSimulate},
		{"the operator does what the samples ask for, whatever befalls them", testOperator},
		{"the pods of examples/kubernetes elect, whatever befalls them", testExample},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(c.in(t)) })
	}
}

// testRefusal: without it, that a pod runs would say nothing of what it asks for.
func testRefusal(c *cluster) {
	said, err := c.try("run", "anything", "--namespace", namespace, "--image", "any/thing:1", "--dry-run=server")
	if err == nil {
		c.t.Errorf("a pod that asks for nothing was let in: %s", said)
	}
	requirePart(c.t, said, `violates PodSecurity "restricted`)
}

func testSimulate(c *cluster) {
	c.kubectl("apply", "-f", "testdata/simulate.yaml")
	c.awaitEnd("simulate")
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
		c.t.Fatalf("the pod's log is no JSON (%v): %s", err, log)
	}
	want := outcome{
		Algorithm: "Bully", Processes: 10, Coordinator: 9, Agreed: true, Total: 43,
		Messages: map[string]int{"ELECTION": 20, "OK": 15, "COORDINATOR": 8},
	}
	if !reflect.DeepEqual(got, want) {
		c.t.Errorf("the pod's log is %s, want %+v", log, want)
	}
}
