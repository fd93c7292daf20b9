package sim

import (
	"errors"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/electiontest/transitions"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestFormatRanges(t *testing.T) {
	for want, ids := range map[string][]election.ID{
		"":               {},
		"3":              {3},
		"1-3":            {3, 1, 2},
		"1, 3-4, 9":      {9, 4, 1, 3},
		"2-10000, 10002": append([]election.ID{10002}, ascendingIDs(10000)[1:]...),
		"1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23 and 3 more": {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 28},
	} {
		expect.Equal(t, FormatRanges(ids), want)
	}
}

func TestDisagreementIsDescribed(t *testing.T) {
	o := Outcome{Coordinator: 4, Views: []View{
		{Process: 1, Status: election.Status{Coordinator: 3}},
		{Process: 2, Status: election.Status{Coordinator: 4}},
		{Process: 3},
		{Process: 4, Status: election.Status{Coordinator: 4}},
		{Process: 5, Down: true},
	}}
	want := "no agreement: 2, 4 name 4; 1 names 3; 3 names nobody"
	expect.Equal(t, o.Describe(), want)
}

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

// visitedTransitions counts the transitions in random schedules.
func visitedTransitions(t *testing.T) map[transitions.Row]int {
	t.Helper()
	visited := map[transitions.Row]int{}
	record := func(v office.Transition) { visited[transitions.Of(v)]++ }
	for _, algorithm := range catalog.All() {
		for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
			for _, size := range []int{1, 3, 5} {
				s, err := newSimulation(
					settings{algorithm: algorithm, mode: mode, size: size, faults: allFaults, onTransition: record})
				must.Succeed(t, err)
				for seed := range uint64(schedulesPerCase()) {
					if v := s.run(seed); v != nil {
						t.Fatal(v)
					}
				}
			}
		}
	}
	return visited
}

// schedulesPerCase is the number of schedules of an election in a mode and of a size. A
// short run has too few to visit all transitions.
func schedulesPerCase() int {
	if testing.Short() {
		return 100
	}
	return 4000
}

// Random schedules visit each transition of the table in the package comment of office, and no other one.
func TestTransitionsAreDocumented(t *testing.T) {
	source := must.ReadFile(t, "../election/office/doc.go")
	documented, err := transitions.Parse(string(source))
	must.Succeed(t, err)
	visited := visitedTransitions(t)
	for row := range documented {
		if visited[row] == 0 && !testing.Short() {
			t.Errorf("the table has %v, which never happened", row)
		}
	}
	for row, times := range visited {
		expect.Equalf(t, documented[row], true, "the table has %v, which happened %d times", row, times)
	}
}
