package sim

import (
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// stateGraph is the graph of the states that an Exploration has visited, with the transitions that are not faults. A
// group with offices never terminates, so there is no final state to check. Instead, a state in which all processes
// agree must be reachable from every state.
type stateGraph struct {
	agreed []bool
	// predecessors has, for each state, those with a transition to it.
	predecessors [][]int32
	// foundFrom and foundBy are the state and the move by which each state was found first.
	foundFrom []int32
	foundBy   []string
}

func (g *stateGraph) add(foundFrom int32, foundBy string, agreed bool) {
	g.agreed = append(g.agreed, agreed)
	g.predecessors = append(g.predecessors, nil)
	g.foundFrom, g.foundBy = append(g.foundFrom, foundFrom), append(g.foundBy, foundBy)
}

func (g *stateGraph) connect(from, to int32) { g.predecessors[to] = append(g.predecessors[to], from) }

// deadEnd returns a state from which no agreed state can be reached, or -1.
func (g *stateGraph) deadEnd() int {
	reached := slices.Clone(g.agreed)
	var next []int32
	for state, agreed := range g.agreed {
		if agreed {
			next = append(next, int32(state))
		}
	}
	for len(next) > 0 {
		state := next[len(next)-1]
		next = next[:len(next)-1]
		for _, from := range g.predecessors[state] {
			if !reached[from] {
				reached[from] = true
				next = append(next, from)
			}
		}
	}
	return slices.Index(reached, false)
}

// path returns the moves that lead to a state.
func (g *stateGraph) path(state int) []string {
	var path []string
	for ; state > 0; state = int(g.foundFrom[state]) {
		path = append(path, g.foundBy[state])
	}
	slices.Reverse(path)
	return path
}

// findDeadEnd reports a violation if agreement can't be reached from some state.
func (e *explorer) findDeadEnd() {
	state := e.graph.deadEnd()
	if state < 0 {
		return
	}
	e.found.Violation = &Violation{
		Invariant: "agreement", Detail: fmt.Sprintf("agreement can't be reached from state %d", state),
	}
	e.found.Path = e.graph.path(state)
}

// agreed reports whether all live processes follow the highest one and, with offices, whether it has tenure. It also
// returns true if too few processes are up for one to have tenure.
func (e *explorer) agreed(s *systemState) bool {
	best := e.best(s)
	for id, m := range s.machines {
		if id == 0 || !s.up[id] {
			continue
		}
		status := m.Status()
		if status.Coordinator != best || e.x.Safety != "" && best == election.ID(id) && status.Token == 0 {
			return !e.majorityUp(s)
		}
	}
	return true
}

// majorityUp reports whether enough processes are up for one to hold the office.
func (e *explorer) majorityUp(s *systemState) bool {
	if e.x.Safety == "" || e.x.Safety == office.Available.String() {
		return true
	}
	up := 0
	for _, alive := range s.up {
		if alive {
			up++
		}
	}
	return up >= e.roster.Majority()
}
