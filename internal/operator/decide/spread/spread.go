// Package spread decides which groups prefer another member, so that their coordinators are spread over nodes or zones.
// It is pure.
//
// The member that a group prefers has the highest priority in its list. So the spread needs no memory but the lists, it
// remains while no operator runs, and a coordinator moves by an ordinary preemption. What counts is where coordinators
// run while all members are healthy: a failover or an evacuation moves no other group.
package spread

import (
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Group is a group with spec.preemption.spread.
type Group struct {
	Name types.NamespacedName
	Over v1.Spread
	// Location is the node or the zone of the preferred member; "" if it isn't known.
	Location string
	// Alternatives has the members that can be preferred instead; none if the group must not move now.
	Alternatives []Alternative
}

// Alternative is a member that can be preferred.
type Alternative struct{ Pod, Location string }

// Move makes a group prefer another member.
type Move struct {
	Group types.NamespacedName
	Pod   string
}

// locations counts groups by location: a node and a zone of the same name are two.
type locations map[location]int

type location struct {
	over v1.Spread
	name string
}

// Moves returns at most a number of moves. Each makes the difference between two locations smaller that differ by two
// or more. Namespaces take turns, beginning with that of the first group; within a namespace, the largest difference
// comes first, and then the first group.
func Moves(groups []Group, most int) []Move {
	counts := locations{}
	for i := range groups {
		if g := &groups[i]; g.Location != "" {
			counts[location{g.Over, g.Location}]++
		}
	}
	var moves []Move
	moved, turns := map[types.NamespacedName]bool{}, map[string]int{}
	for len(moves) < most {
		var best *Group
		var to Alternative
		largest := 0
		for i := range groups {
			g := &groups[i]
			if moved[g.Name] {
				continue
			}
			a, difference := g.bestAlternative(counts)
			if difference < 2 {
				continue
			}
			if best == nil || turns[g.Name.Namespace] < turns[best.Name.Namespace] ||
				g.Name.Namespace == best.Name.Namespace && difference > largest {
				largest, best, to = difference, g, a
			}
		}
		if best == nil {
			break
		}
		counts[location{best.Over, best.Location}]--
		counts[location{best.Over, to.Location}]++
		moved[best.Name] = true
		turns[best.Name.Namespace]++
		moves = append(moves, Move{best.Name, to.Pod})
	}
	return moves
}

// bestAlternative returns the alternative in the location with the fewest coordinators, and how many fewer these are.
func (g *Group) bestAlternative(counts locations) (best Alternative, difference int) {
	if g.Location == "" {
		return best, 0
	}
	for _, a := range g.Alternatives {
		if d := counts[location{g.Over, g.Location}] - counts[location{g.Over, a.Location}]; a.Location != "" &&
			d > difference {
			best, difference = a, d
		}
	}
	return best, difference
}
