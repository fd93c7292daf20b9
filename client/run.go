package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Run takes part in the election of the group's coordinator until ctx ends, or
// until lead has returned by itself. It opens a session with the agent, and a
// new one when that breaks.
//
// Each time this process has become coordinator it calls lead with the tenure's
// fencing token. The context that lead is given ends as soon as this process is
// to act no longer; context.Cause tells why (ErrStop, ErrLost, ErrNotRenewed,
// ErrAgentGone, or what ended ctx). Then lead must return, within the drain
// time of the group. What it returns then is of no consequence, and Run waits
// for the next tenure.
//
// If lead returns while it still leads, the role is given up and Run returns
// what lead returned, also nil. When ctx has ended, Run waits for lead, closes
// the session and returns ctx.Err(). It returns an error at once if the agent's
// address makes no sense or if the agent, at the first answer, knows no such
// group; it waits for an agent that can't be reached.
func Run(ctx context.Context, group string, lead func(ctx context.Context, token uint64) error, options ...Option) error {
	// Closed at the end, so that nothing of Run outlives it.
	transport := newTransport()
	defer transport.CloseIdleConnections()
	a, err := connect(group, transport, options)
	if err != nil {
		return err
	}
	var pause backoff
	for known, complained := false, false; ; {
		began := time.Now()
		s := newSession(ctx, a, lead)
		outcome, err := s.run()
		known = known || s.id != ""
		switch {
		case outcome != nil:
			return outcome.err
		case ctx.Err() != nil:
			return ctx.Err()
		case misled(err) && !known:
			return fmt.Errorf("take part in %s: %w", group, err)
		}
		if s.id != "" || !complained {
			a.log.Warn("no session with the agent", "group", group, "agent", a.address, "error", err)
			complained = true
		}
		if s.id != "" && time.Since(began) > longestPause {
			pause.reset()
		}
		if !pause.pause(ctx) {
			return ctx.Err()
		}
	}
}

// complain tells of an error that has no other way out. That a context ended is none.
func (a *agent) complain(token uint64, o outcome) {
	if o.err == nil || errors.Is(o.err, context.Canceled) || errors.Is(o.err, o.cause) {
		return
	}
	a.log.Warn("the function that led was told to stop and returned an error", "group", a.group, "token", token, "error", o.err)
}
