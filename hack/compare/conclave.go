package main

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/conclave-dev/conclave/client"
)

// conclaveElector is an application beside an agent.
type conclaveElector struct {
	group   string
	members []string
	options []client.Option
	tenure  atomic.Pointer[context.Context]
}

func startConclave(_ context.Context, s *spec) ([]elector, error) {
	if err := s.daemon(s.Agent...); err != nil {
		return nil, err
	}
	// As without DialWith, all groups share the connection for renewals.
	options := []client.Option{client.At("http://" + s.API), client.LogTo(slog.New(slog.DiscardHandler)), client.DialWith(
		s.dialer().DialContext)}
	var all []elector
	for i := range s.Groups {
		all = append(all, &conclaveElector{group: groupName(i), members: s.Members, options: options})
	}
	return all, nil
}

func (e *conclaveElector) run(ctx context.Context, to *reporter) error {
	go func() {
		for state, err := range client.Watch(ctx, e.group, e.options...) {
			if err == nil { // Otherwise the agent has ended, or hasn't started yet.
				to.know(slices.Index(e.members, state.Coordinator))
			}
		}
	}()
	return client.Run(ctx, e.group, func(ctx context.Context, _ uint64) error {
		e.tenure.Store(&ctx)
		to.check()
		<-ctx.Done()
		to.check()
		return nil
	}, e.options...)
}

func (e *conclaveElector) leads() bool {
	tenure := e.tenure.Load()
	return tenure != nil && (*tenure).Err() == nil
}
