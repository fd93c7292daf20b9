package sim

import (
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// ways are how the states of a small world lead to each other while nothing goes
// wrong. An office never comes to an end; what can be asked of it is that
// agreement is always still possible.
type stateGraph struct {
	settled []bool
	// from are, for each state, those that lead to it.
	predecessors [][]int32
	// origin is from where each state was found first, by the choice.
	foundFrom []int32
	foundBy   []string
}

func (w *stateGraph) add(origin int32, choice string, settled bool) {
	w.settled = append(w.settled, settled)
	w.predecessors = append(w.predecessors, nil)
	w.foundFrom, w.foundBy = append(w.foundFrom, origin), append(w.foundBy, choice)
}

func (w *stateGraph) connect(from, to int32) { w.predecessors[to] = append(w.predecessors[to], from) }

// stuck is a state that leads to no settled one, or -1.
func (w *stateGraph) deadEnd() int {
	reached := slices.Clone(w.settled)
	var next []int32
	for state, settled := range w.settled {
		if settled {
			next = append(next, int32(state))
		}
	}
	for len(next) > 0 {
		state := next[len(next)-1]
		next = next[:len(next)-1]
		for _, from := range w.predecessors[state] {
			if !reached[from] {
				reached[from] = true
				next = append(next, from)
			}
		}
	}
	return slices.Index(reached, false)
}

// path are the choices that lead to a state.
func (w *stateGraph) path(state int) []string {
	var path []string
	for ; state > 0; state = int(w.foundFrom[state]) {
		path = append(path, w.foundBy[state])
	}
	slices.Reverse(path)
	return path
}

// findDeadEnd finds a state from which agreement is out of reach.
func (e *explorer) findDeadEnd() {
	state := e.graph.deadEnd()
	if state < 0 {
		return
	}
	e.found.Violation = &Violation{
		Invariant: "agreement", Detail: fmt.Sprintf("from state %d on nothing leads to agreement any more", state),
	}
	e.found.Path = e.graph.path(state)
}

// settled reports whether all that live follow the highest, which leads; or
// whether too few live for anybody to lead.
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

// enough reports whether as many live as it takes to lead.
func (e *explorer) majorityUp(s *systemState) bool {
	if e.x.Safety == "" || e.x.Safety == office.Available.String() {
		return true
	}
	up := 0
	for _, lives := range s.up {
		if lives {
			up++
		}
	}
	return up >= e.roster.Majority()
}
