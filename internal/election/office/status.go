package office

import "github.com/conclave-dev/conclave/internal/election"

// Status says what the process knows: who holds the office, not who won.
func (m *Machine) Status() election.Status {
	s := election.Status{Coordinator: m.coordinator, Term: m.coordinatorTerm}
	s.Electing = m.role == candidate || m.coordinator == election.None
	if m.role >= holder {
		s.Token, s.Until = m.token, m.until()
	}
	return s
}

// Eligible reports whether the process could lead, as far as it depends on itself.
func (m *Machine) Eligible() bool { return m.canStand() }

// Suspects are those that Rows calls crashed. Callers must not change it.
func (m *Machine) Suspects() election.IDs { return m.detector.All() }

func (m *Machine) until() election.Tick {
	if m.cfg.Mode == Available {
		return election.Never
	}
	return m.support.Until()
}

// Rows appends the process status table: what the election inside knows, with
// who holds the office.
func (m *Machine) Rows(rows []election.Row) []election.Row {
	from := len(rows)
	rows = m.inner.Rows(rows)
	for i := range rows[from:] {
		row := &rows[from+i]
		switch {
		case row.ID == m.coordinator:
			row.Status = election.Coordinating
		case m.detector.Suspects(row.ID):
			row.Status = election.Crashed
		default:
			row.Status = election.Normal
		}
	}
	return rows
}
