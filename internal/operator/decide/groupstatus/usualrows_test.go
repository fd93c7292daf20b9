package groupstatus

import (
	"maps"
	"reflect"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// checkUsualRows checks that reports without their usual rows amount to the same result. The
// agents are those of both kinds, as after an upgrade of some.
func (h *randomHistory) checkUsualRows() {
	complete, reduced := h.Facts, h.Facts
	complete.Agents, reduced.Agents = maps.Clone(h.Agents), maps.Clone(h.Agents)
	for name, agent := range h.Agents {
		if agent.Report == nil {
			continue
		}
		all := h.completeTable(agent.Report)
		agent.Report = &all
		complete.Agents[name] = agent
		if h.rng.IntN(4) > 0 {
			unusual := all.WithoutUsualRows()
			agent.Report = &unusual
		}
		reduced.Agents[name] = agent
	}
	if want, got := Evaluate(complete), Evaluate(reduced); !reflect.DeepEqual(got, want) {
		h.t.Errorf("without usual rows: got %s, want %s", formatTable(&got.Status), formatTable(&want.Status))
	}
}

// completeTable returns a report whose table has a row for each member of the list that the
// report names, as those of real agents have.
func (h *randomHistory) completeTable(r *control.Report) control.Report {
	result := *r
	members := h.List.Members
	if h.List.Previous != nil && int64(r.Version) < h.List.Version {
		members = h.List.Previous.Members
	}
	rows := map[string]control.Row{}
	for _, row := range r.Processes {
		rows[row.Name] = row
	}
	result.Processes = nil
	for _, m := range members {
		row, ok := rows[m.Pod]
		if !ok {
			row = control.Row{Name: m.Pod, Status: string(v1.ProcessNormal), Connected: h.rng.IntN(2) == 0}
		}
		result.Processes = append(result.Processes, row)
	}
	return result
}
