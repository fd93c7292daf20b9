package pod

import (
	"context"
	"time"

	"github.com/conclave-dev/conclave/internal/agent"
)

// fend has the agent decide for itself whether it stands where no operator has
// listened for a while. Otherwise whoever was withheld when the operator went would
// be so for good, and a group could be without a coordinator for no other reason.
// An operator that comes back hears that it stands, and says again what it wants.
func (p *runtime) readmitAfterOperatorAbsence(ctx context.Context, a *agent.Agent) {
	for ctx.Err() == nil {
		attended, turned := p.reports.hasReaders()
		var alone <-chan time.Time
		if !attended {
			alone = time.After(p.settings.OperatorAbsence)
		}
		select {
		case <-turned:
		case <-alone:
			p.readmitAll(ctx, a)
		case <-ctx.Done():
		}
	}
}

// release ends all withholding.
func (p *runtime) readmitAll(ctx context.Context, a *agent.Agent) {
	for _, name := range a.Names() {
		g, ok := a.Find(name)
		if !ok {
			continue
		}
		if withheld, err := g.Excluded(ctx); err != nil || !withheld {
			continue
		}
		if err := g.Readmit(ctx); err != nil {
			continue // It has been left meanwhile.
		}
		p.log.Warn("stands again, though an operator has asked it not to: none has listened since", "group", name, "for", p.settings.OperatorAbsence)
	}
}
