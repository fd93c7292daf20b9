package office

import "github.com/conclave-dev/conclave/internal/election"

// Status returns which process holds the office. That need not be the process that won the last election.
func (m *Machine) Status() election.Status {
	s := election.Status{Coordinator: m.reportedCoordinator(), Term: m.coordinatorTerm}
	s.Electing = m.role == Candidate || s.Coordinator == election.None
	s.HandsOver = m.role == Follower && m.coordinator != election.None && m.lastBeat.handsOver
	if m.role >= Holder {
		s.Token, s.Until = m.tenure.token, m.until()
	}
	return s
}

// Elected returns the term of an election that this process has won, and 0 unless it waits for the end of a former
// lease. By the moment until, it holds the office or has given up its claim.
func (m *Machine) Elected() (term election.Term, until election.Tick) {
	if m.role != Candidate || !m.candidacy.waits {
		return 0, 0
	}
	return m.term, m.claimUntil() + m.cfg.Heartbeat
}

// Suspects returns the processes that Rows reports as crashed. Callers must not change the result.
func (s *state) Suspects() election.IDs { return s.detector.All() }

// until returns when the tenure, or the right to acquire one, expires.
func (s *state) until() election.Tick {
	if s.cfg.Mode == Available {
		return election.Never
	}
	return s.support.Until()
}

// Rows appends the process status table to rows. The inner election determines
// the members; the office determines their status.
func (m *Machine) Rows(rows []election.Row) []election.Row {
	from, coordinator := len(rows), m.reportedCoordinator()
	rows = m.inner.Rows(rows)
	for i := range rows[from:] {
		row := &rows[from+i]
		switch {
		case row.ID == coordinator:
			row.Status = election.Coordinating
		case m.detector.Suspects(row.ID):
			row.Status = election.Crashed
		default:
			row.Status = election.Normal
		}
	}
	return rows
}
