// Package catalog maps the names of the algorithms, as users write them, to
// their constructors. No other package refers to an algorithm by name.
package catalog

import (
	"fmt"
	"strings"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/bully"
	"github.com/conclave-dev/conclave/internal/election/ring"
	"github.com/conclave-dev/conclave/internal/election/statustable"
)

// Algorithm is one entry of the catalog.
type Algorithm struct {
	Name string
	New  func(election.Config) (election.Machine, error)
	// Ring: processes send to their successor only.
	Ring bool
	// DeadForward: in the textbook the control part of a failed process still forwards messages.
	DeadForward bool
	// RecoveryStarts: a recovered process starts an election rather than requesting the state of the others.
	RecoveryStarts bool
}

// All returns the algorithms, in the order in which they are documented.
func All() []Algorithm {
	return []Algorithm{
		{Name: "Bully", New: bully.New, RecoveryStarts: true},
		{Name: "StatusTable", New: statustable.New},
		{Name: "RingAllIDs", New: ring.NewAllIDs, Ring: true, DeadForward: true, RecoveryStarts: true},
		{Name: "RingChampion", New: ring.NewChampion, Ring: true, DeadForward: true, RecoveryStarts: true},
		{Name: "RingActiveList", New: ring.NewActiveList, Ring: true},
		{Name: "RingSkip", New: ring.NewSkip, Ring: true, RecoveryStarts: true},
	}
}

// Names returns the names of the algorithms.
func Names() []string {
	var names []string
	for _, a := range All() {
		names = append(names, a.Name)
	}
	return names
}

// Find returns the algorithm with the given name.
func Find(name string) (Algorithm, error) {
	for _, a := range All() {
		if a.Name == name {
			return a, nil
		}
	}
	return Algorithm{}, fmt.Errorf("unknown algorithm %q: choose one of %s", name, strings.Join(Names(), ", "))
}
