package understudy

import (
	"cmp"
	"slices"

	"github.com/conclave-dev/conclave/internal/control"
)

// report is what there is to say about a group. The caller holds mu.
func (a *Agent) report(p *part) control.Report {
	d := p.decree
	r := control.Report{
		Group: p.document.Group.Name, Pod: a.role.Pod,
		UID: p.document.UID, Generation: p.document.Generation, Revision: p.document.Revision,
		Version: p.document.Group.Version, Digest: p.digest,
		Coordinator: d.Coordinator, Term: d.Term, ElectedAt: d.ElectedAt, Electing: d.Electing,
		Standing: !p.withheld, Withheld: p.withheld, ChangedAt: p.changed,
	}
	for _, m := range p.document.Group.Members {
		row := control.Row{Name: m.Name, Priority: m.Priority, Status: "Normal", Connected: true}
		switch {
		case d.Crashed[m.Name]:
			row.Status, row.Connected = "Crashed", false
		case m.Name == d.Coordinator:
			row.Status = "Coordinator"
		}
		r.Processes = append(r.Processes, row)
	}
	slices.SortStableFunc(r.Processes, func(x, y control.Row) int { return cmp.Compare(y.Priority, x.Priority) })
	return r
}
