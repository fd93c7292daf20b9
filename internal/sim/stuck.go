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
type ways struct {
	settled []bool
	// from are, for each state, those that lead to it.
	from [][]int32
	// origin is from where each state was found first, by the choice.
	origin []int32
	choice []string
}

func (w *ways) add(origin int32, choice string, settled bool) {
	w.settled = append(w.settled, settled)
	w.from = append(w.from, nil)
	w.origin, w.choice = append(w.origin, origin), append(w.choice, choice)
}

func (w *ways) connect(from, to int32) { w.from[to] = append(w.from[to], from) }

// stuck is a state that leads to no settled one, or -1.
func (w *ways) stuck() int {
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
		for _, from := range w.from[state] {
			if !reached[from] {
				reached[from] = true
				next = append(next, from)
			}
		}
	}
	return slices.Index(reached, false)
}

// path are the choices that lead to a state.
func (w *ways) path(state int) []string {
	var path []string
	for ; state > 0; state = int(w.origin[state]) {
		path = append(path, w.choice[state])
	}
	slices.Reverse(path)
	return path
}

// findStuck finds a state from which agreement is out of reach.
func (e *explorer) findStuck() {
	state := e.ways.stuck()
	if state < 0 {
		return
	}
	e.found.Violation = &Violation{
		Invariant: "agreement", Detail: fmt.Sprintf("from state %d on nothing leads to agreement any more", state),
	}
	e.found.Path = e.ways.path(state)
}

// settled reports whether all that live follow the highest, which leads; or
// whether too few live for anybody to lead.
func (e *explorer) settled(s *smallState) bool {
	best := e.best(s)
	for id, m := range s.machines {
		if id == 0 || !s.up[id] {
			continue
		}
		status := m.Status()
		if status.Coordinator != best || e.x.Safety != "" && best == election.ID(id) && status.Token == 0 {
			return !e.enough(s)
		}
	}
	return true
}

// enough reports whether as many live as it takes to lead.
func (e *explorer) enough(s *smallState) bool {
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
