package pod

import (
	"context"
	"time"

	"github.com/conclave-dev/conclave/internal/agent"
)

// readmitAfterOperatorAbsence makes the agent eligible again in all groups when no
// operator has read its reports for some time. Otherwise a process that the operator
// excluded before it stopped would remain ineligible, and a group could be without a
// coordinator for no other reason. An operator that returns receives a report that the
// process is eligible, and can exclude it again.
func (r *runtime) readmitAfterOperatorAbsence(ctx context.Context, a *agent.Agent) {
	for ctx.Err() == nil {
		attended, changed := r.reports.hasReaders()
		var absent <-chan time.Time
		if !attended {
			absent = time.After(r.settings.OperatorAbsence)
		}
		select {
		case <-changed:
		case <-absent:
			r.readmitAll(ctx, a)
		case <-ctx.Done():
		}
	}
}

// readmitAll ends the exclusion from all groups.
func (r *runtime) readmitAll(ctx context.Context, a *agent.Agent) {
	for _, name := range a.Names() {
		g, ok := a.Find(name)
		if !ok {
			continue
		}
		if excluded, err := g.Excluded(ctx); err != nil || !excluded {
			continue
		}
		if err := g.Readmit(ctx); err != nil {
			continue // The agent has left the group meanwhile.
		}
		r.log.Warn("ended exclusion by the operator, which is absent", "group", name, "absentFor", r.settings.OperatorAbsence)
	}
}
