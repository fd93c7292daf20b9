package group

import (
	"context"
	"errors"
)

// Exclude keeps this process from leading, or lets it lead again. If it leads,
// it hands the office over first; if nobody can take it, all stays as it was.
func (g *Group) Exclude(ctx context.Context) error {
	watcher := g.Watch("")
	if err := g.withhold(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.DrainTimeout()+handOverMax, ErrHandOverTimeout)
	defer cancel()
	g.await(ctx, watcher, func(l Leader) bool { return l.Coordinator != g.cfg.Self })
	return context.Cause(ctx)
}

func (g *Group) withhold(ctx context.Context) error {
	var refused error
	err := g.ask(ctx, func() {
		if refused = g.stepDown(""); refused == nil || errors.Is(refused, ErrNotLeading) {
			refused = nil
			g.app.withheld = true
			g.reconsider()
		}
	})
	if err != nil {
		return err
	}
	return refused
}

// Excluded reports whether it is.
func (g *Group) Excluded(ctx context.Context) (bool, error) {
	var withheld bool
	if err := g.ask(ctx, func() { withheld = g.app.withheld }); err != nil {
		return false, err
	}
	return withheld, nil
}

// Readmit ends that this process is withheld.
func (g *Group) Readmit(ctx context.Context) error {
	return g.ask(ctx, func() {
		g.app.withheld = false
		g.reconsider()
	})
}
