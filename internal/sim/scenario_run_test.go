package sim

import (
	"errors"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestTooManyMessagesEndScenario(t *testing.T) {
	algorithm, err := catalog.Find("Bully")
	must.Succeed(t, err)
	s := Scenario{Algorithm: "Bully", Processes: 100, Initiators: []election.ID{1}, Latency: Millisecond}
	run := &scenarioRun{scenario: s, algorithm: algorithm, counts: make([]int, len(election.Kinds())+1), maxPending: 1000}
	must.Succeed(t, run.setUp())
	var inputError *InputError
	if err := run.run(); !errors.As(err, &inputError) {
		t.Errorf("got error %v, want an InputError", err)
	}
}
