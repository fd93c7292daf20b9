package group

import (
	"context"
	"errors"
)

// Exclude makes this process ineligible. If it is coordinator, it first hands over the
// office. If there is no possible successor, nothing changes, and Exclude returns
// ErrNoSuccessor.
func (g *Group) Exclude(ctx context.Context) error {
	watcher := g.Watch("")
	if err := g.exclude(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.DrainTimeout()+handOverMax, ErrHandOverTimeout)
	defer cancel()
	g.waitUntil(ctx, watcher, func(l Leader) bool { return l.Coordinator != g.cfg.Self })
	return context.Cause(ctx)
}

func (g *Group) exclude(ctx context.Context) error {
	return g.try(ctx, func() error {
		if err := g.stepDown("", CauseExcluded); err != nil && !errors.Is(err, ErrNotLeading) {
			return err
		}
		g.app.excluded = true
		g.updateEligibility()
		return nil
	})
}

// Excluded reports whether this process is excluded.
func (g *Group) Excluded(ctx context.Context) (bool, error) {
	var excluded bool
	if err := g.call(ctx, func() { excluded = g.app.excluded }); err != nil {
		return false, err
	}
	return excluded, nil
}

// Readmit ends the exclusion of this process.
func (g *Group) Readmit(ctx context.Context) error {
	return g.call(ctx, func() {
		g.app.excluded = false
		g.updateEligibility()
	})
}
