package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
)

// Watch yields the state of the group, and then each change, in order. After an interruption, for example because the
// agent was restarted, it continues with the current state.
//
// Watch yields an error that wraps ErrAgentGone once when it cannot reach the agent: the last state may then be
// outdated. If the loop continues, Watch yields the state as soon as the agent is reachable again. Any other error is
// the last pair of the sequence: the agent's address is invalid, or the agent's first response is that the group
// doesn't exist. Otherwise, the sequence ends with ctx.
//
// Leading and Token of the states may be outdated. To act as coordinator, use Run.
func Watch(ctx context.Context, group string, options ...Option) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		a, err := newAgent(group, options)
		if err != nil {
			yield(State{}, err)
			return
		}
		a.http.Transport = newTransport(a.connections.connect)
		defer a.http.CloseIdleConnections()
		w := watcher{agent: a, yield: yield}
		w.run(ctx)
	}
}

type watcher struct {
	agent *agent
	yield func(State, error) bool
	// last is the state that was yielded last. If force is set, the next state is yielded even if it is the same.
	last  State
	force bool
}

// errStopIteration means that the caller has left the loop.
var errStopIteration = errors.New("stop iteration")

func (w *watcher) run(ctx context.Context) {
	var retry backoff
	w.force = true
	for groupExists, reported := false, false; ; {
		accepted, err := w.agent.readEvents(ctx, "/watch", w.handleEvent)
		switch {
		case errors.Is(err, errStopIteration) || ctx.Err() != nil:
			return
		case accepted:
			// The stream was interrupted, for example because the agent restarts. Report
			// an error only if the next attempt fails.
			groupExists, reported = true, false
			retry.reset()
		case isClientError(err) && !groupExists:
			w.yield(State{}, fmt.Errorf("cannot watch group %s: %w", w.agent.group, err))
			return
		case !reported:
			// Even if the state hasn't changed, it shows that the agent is reachable again.
			reported, w.force = true, true
			if !w.yield(State{}, fmt.Errorf("%w: cannot watch group %s: %w", ErrAgentGone, w.agent.group, err)) {
				return
			}
		}
		if !retry.wait(ctx) {
			return
		}
	}
}

// handleEvent yields the state of an event, unless it was yielded before: a stream starts with the current state.
func (w *watcher) handleEvent(e event) error {
	var state State
	if err := json.Unmarshal(e.data, &state); err != nil {
		return fmt.Errorf("invalid event %.100q: %w", e.data, err)
	}
	if state == w.last && !w.force {
		return nil
	}
	w.last, w.force = state, false
	if !w.yield(state, nil) {
		return errStopIteration
	}
	return nil
}
