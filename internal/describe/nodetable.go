package describe

import (
	"cmp"
	"slices"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// NodeRow is what a cluster loses with a node.
type NodeRow struct {
	Node string `json:"node"`
	Zone string `json:"zone,omitempty"`
	// Coordinators are the groups whose coordinator is on the node, as namespace/name.
	Coordinators []string `json:"coordinators"`
	// Members counts the members on the node, of all groups.
	Members int `json:"members"`
	// Stops are the groups that would have no coordinator if the node failed.
	Stops []string `json:"stops"`
}

// NodeTable returns the nodes on which members of groups are, those with the most coordinators first.
func NodeTable(groups []v1.ElectionGroup) []NodeRow {
	rows := map[string]*NodeRow{}
	for i := range groups {
		g := &groups[i]
		name := g.Namespace + "/" + g.Name
		for _, place := range Nodes(g) {
			row := rows[place.Name]
			if row == nil {
				row = &NodeRow{Node: place.Name, Coordinators: []string{}, Stops: []string{}}
				rows[place.Name] = row
			}
			row.Members += len(place.Members)
			if c := g.Status.Coordinator; c != nil && slices.Contains(place.Members, c.Pod) {
				row.Coordinators = append(row.Coordinators, name)
			}
			if place.Loss == Stops {
				row.Stops = append(row.Stops, name)
			}
		}
		for j := range g.Status.Processes {
			if p := &g.Status.Processes[j]; p.Node != "" {
				rows[p.Node].Zone = cmp.Or(p.Zone, rows[p.Node].Zone)
			}
		}
	}
	all := []NodeRow{}
	for _, row := range rows {
		all = append(all, *row)
	}
	slices.SortFunc(all, func(a, b NodeRow) int {
		return cmp.Or(cmp.Compare(len(b.Coordinators), len(a.Coordinators)), cmp.Compare(b.Members, a.Members),
			cmp.Compare(a.Node, b.Node))
	})
	return all
}
