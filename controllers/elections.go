package controllers

import (
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/tracing"
)

// recentElection is how long ago an election may be that a new leader exports. The former leader
// may have stopped before it did.
const recentElection = 5 * time.Minute

// trace exports the election of the coordinator that the status names, once.
func (r *Reconciler) trace(s *snapshot, c *v1.Coordinator) {
	if r.options.Traces == nil || c == nil || c.Term <= s.state.tracedTerm {
		return
	}
	first := s.state.tracedTerm == 0
	s.state.tracedTerm = c.Term
	if first && s.now.Sub(c.ElectedAt.Time) > recentElection {
		return
	}
	e := tracing.Election{Group: s.key, UID: s.group.UID, Term: uint64(c.Term)} //nolint:gosec // The schema requires at least 0.
	e.Members = append(e.Members, c.Pod)
	for i := range s.group.Status.Processes {
		if pod := s.group.Status.Processes[i].Pod; pod != c.Pod {
			e.Members = append(e.Members, pod)
		}
	}
	r.options.Traces.Add(e)
}
