package sim

import (
	"errors"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
)

func TestTooManyMessagesEndTheScenario(t *testing.T) {
	algorithm, err := catalog.Find("Bully")
	if err != nil {
		t.Fatal(err)
	}
	s := Scenario{Algorithm: "Bully", Processes: 100, Initiators: []election.ID{1}, Latency: Millisecond}
	run := &scenarioRun{scenario: s, algorithm: algorithm, counts: make([]int, len(election.Kinds())+1), maxPending: 1000}
	if err := run.setUp(); err != nil {
		t.Fatal(err)
	}
	var input *InputError
	if err := run.run(); !errors.As(err, &input) {
		t.Errorf("a hundred bullies in room for 1000 messages ended with %v", err)
	}
}
