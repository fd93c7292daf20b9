package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Run takes part in the election of the group's coordinator until ctx ends, or until lead returns although its context
// hasn't ended. Run opens a session with the agent, and a new one whenever the session breaks.
//
// Each time this process has become coordinator, Run calls lead with the tenure's fencing token. The context of lead
// ends as soon as this process must stop acting as coordinator. context.Cause returns the reason: ErrStop, ErrLost,
// ErrNotRenewed, ErrAgentGone, or the cause for which ctx ended. Then lead must return within the group's drain
// timeout. Run ignores its result, and waits for the next tenure.
//
// If lead returns before its context ends, the agent gives up the office, and Run returns the result of lead, even if
// it is nil. When ctx ends, Run waits for lead, closes the session and returns ctx.Err(). Run fails at once if the
// agent's address is invalid, or if the agent's first response is that the group doesn't exist. It waits for an agent
// that it cannot reach.
func Run(ctx context.Context, group string,
	lead func(ctx context.Context, token uint64) error, options ...Option,
) error {
	a, err := newAgent(group, options)
	if err != nil {
		return err
	}
	// A transport of its own, so that Run leaves no connections behind.
	a.http.Transport = newTransport(a.connections.connect)
	defer a.http.CloseIdleConnections()
	leave := a.connections.join(a)
	defer leave()
	var retry backoff
	for groupExists, logged := false, false; ; {
		start := time.Now()
		s := newSession(ctx, a, lead)
		outcome, err := s.run() //nolint:contextcheck // the session has it
		groupExists = groupExists || s.id != ""
		switch {
		case outcome != nil:
			return outcome.err
		case ctx.Err() != nil:
			return ctx.Err()
		case isClientError(err) && !groupExists:
			return fmt.Errorf("cannot join group %s: %w", group, err)
		}
		if s.id != "" || !logged {
			a.log.Warn("no session with agent; retrying", "group", group, "agent", a.address, "error", err)
			logged = true
		}
		if s.id != "" && time.Since(start) > maxDelay {
			retry.reset()
		}
		if !retry.wait(ctx) {
			return ctx.Err()
		}
	}
}

// logReturnedError logs an error that Run doesn't return, unless it only says that the function's context has ended.
func (a *agent) logReturnedError(token uint64, o outcome) {
	if o.err == nil || errors.Is(o.err, context.Canceled) || errors.Is(o.err, o.cause) {
		return
	}
	a.log.Warn("function returned an error after its context ended", "group", a.group, "token", token, "error", o.err)
}
