package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// handOverMax is the maximum duration of a hand-over, not counting the time that the application takes to stop.
const handOverMax = time.Second

// StepDown hands the office over to a member, or to the most suitable one if to is
// empty. It returns when that member is coordinator.
func (g *Group) StepDown(ctx context.Context, to string) (Leader, error) {
	watcher := g.Watch()
	if err := g.try(ctx, func() error { return g.stepDown(to, control.EndStepDown) }); err != nil {
		return g.Leader(), err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.DrainTimeout()+handOverMax, ErrHandOverTimeout)
	defer cancel()
	for {
		change, err := watcher.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return g.Leader(), context.Cause(ctx)
		case err != nil:
			return g.Leader(), err
		case change.Coordinator != "" && change.Coordinator != g.cfg.Self:
			return change, nil
		}
	}
}

// errHandingOver means that a hand-over has begun already.
var errHandingOver = fmt.Errorf("%w any more: it is handing over the office", ErrNotLeading)

func (g *Group) stepDown(to string, cause control.EndCause) error {
	id, known := g.names.ids[to]
	switch {
	case g.app.term == 0:
		return ErrNotLeading
	case g.app.stopping:
		return errHandingOver
	case !known:
		return fmt.Errorf("%w: %q is not a member", ErrNoSuccessor, to)
	}
	before := len(g.out.Events)
	g.observer.decide(cause)
	g.step(election.Input{Kind: election.StepDown, Peer: id})
	for _, e := range g.out.Events[before:] {
		if e.Kind == election.Refused {
			g.observer.resigning = control.EndNone
			if to != "" {
				return notReadyError(to)
			}
			return ErrNoSuccessor
		}
	}
	return nil
}

// Leave ends the participation in the election. A coordinator first hands over the office, and waits for its successor
// for up to the suspicion timeout, because the successor may need a grant from this process. If there is no possible
// successor, the application is asked to stop nevertheless. When ctx ends, Leave gives up the office without waiting.
// cause is why a tenure of this process ends.
func (g *Group) Leave(ctx context.Context, cause control.EndCause) {
	watcher := g.Watch()
	drained, cancel := context.WithTimeout(ctx, g.DrainTimeout()+handOverMax)
	defer cancel()
	err := g.beginLeave(drained, cause)
	g.waitUntil(drained, watcher, func(l Leader) bool { return l.Coordinator != g.cfg.Self })
	if err == nil || errors.Is(err, errHandingOver) {
		succeeded, cancel := context.WithTimeout(ctx, g.inForce.Load().Timing.SuspicionTimeout)
		defer cancel()
		g.waitUntil(succeeded, watcher, func(l Leader) bool { return l.Coordinator != "" && l.Coordinator != g.cfg.Self })
	}
	// In any case, peers must not give grants to this process any more.
	_ = g.call(context.WithoutCancel(ctx), g.becomeIneligible)
	g.leaving.Do(func() { close(g.quit) })
	<-g.done
}

// exclusionMax bounds how long a process that ends waits for the operator to exclude it. The operator learns that the
// pod is being deleted at about the same time as the containers.
const exclusionMax = 500 * time.Millisecond

// replacementMax bounds how long it then waits for a list without it: most pods have 30 s to end.
const replacementMax = 20 * time.Second

// AwaitReplacement waits, if the operator asks for the exclusion of this process, until the other one of two members
// doesn't need its vote any more. The operator publishes a list without this process when the list before has settled,
// which takes a lease.
func (g *Group) AwaitReplacement(ctx context.Context) {
	if g.cfg.OnReport == nil || g.cfg.Group.Safety.Mode == office.Available {
		return
	}
	ctx, end := context.WithTimeout(ctx, min(4*time.Second+g.Lease(), replacementMax))
	defer end()
	excluding, cancel := context.WithTimeout(ctx, exclusionMax)
	defer cancel()
	g.waitWhile(excluding, func() bool { return !g.replaced && g.roster.Has(g.self) && g.roster.Len() <= 2 })
	g.waitWhile(ctx, func() bool { return g.replaced && g.roster.Has(g.self) && g.roster.Len() == 2 })
	if g.waitWhile(ctx, func() bool { return g.replaced && !g.machine.ReportsList() }) {
		pause(ctx, 2*g.inForce.Load().Timing.Heartbeat) // The coordinator must receive an answer that says so.
	}
}

// waitWhile waits while a condition holds, which the goroutine of run evaluates. It reports whether it held at all.
func (g *Group) waitWhile(ctx context.Context, condition func() bool) (held bool) {
	for {
		var holds bool
		if err := g.call(ctx, func() { holds = condition() }); err != nil || !holds {
			return held
		}
		held = true
		pause(ctx, g.inForce.Load().Timing.Heartbeat/4)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// CanRetire reports, after Leave, whether this process is the only member, no process relies on a grant of it, and
// another pod replaces it: the operator asks for the exclusion of an only member if its pod is being deleted. A process
// that is restarted in the same pod needs its identity, since the operator may be away.
func (g *Group) CanRetire() bool {
	return len(g.list.Members) == 1 && g.replaced && !g.machine.GrantsInForce()
}

// ReportRetired reports, after Leave, that the agent has given up the identity of its state directory.
func (g *Group) ReportRetired() {
	report := g.buildReport(g.reporter.summary)
	report.Retired, report.ChangedAt = memberlist.FormatIdentity(uint64(g.cfg.Identity)), time.Now()
	g.cfg.OnReport(report)
}

// beginLeave prevents further tenures of this process. If it is coordinator, it hands
// over the office, or gives it up if there is no possible successor.
func (g *Group) beginLeave(ctx context.Context, cause control.EndCause) error {
	return g.try(ctx, func() error {
		g.app.leaving = true
		err := g.stepDown("", cause)
		if errors.Is(err, ErrNoSuccessor) {
			g.releaseOffice(cause)
		} else {
			g.updateEligibility()
		}
		return err
	})
}

func (g *Group) waitUntil(ctx context.Context, watcher *Watcher[Leader], met func(Leader) bool) {
	for !met(g.Leader()) {
		if _, err := watcher.Next(ctx); err != nil {
			return
		}
	}
}

// Exclude makes this process ineligible. If it is coordinator, it first hands over the office. If there is no possible
// successor, nothing changes, and Exclude returns ErrNoSuccessor.
func (g *Group) Exclude(ctx context.Context) error {
	watcher := g.Watch()
	err := g.try(ctx, func() error {
		g.replaced = true
		if err := g.stepDown("", control.EndExcluded); err != nil && !errors.Is(err, ErrNotLeading) {
			return err
		}
		g.app.excluded = true
		g.updateEligibility()
		return nil
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.DrainTimeout()+handOverMax, ErrHandOverTimeout)
	defer cancel()
	g.waitUntil(ctx, watcher, func(l Leader) bool { return l.Coordinator != g.cfg.Self })
	return context.Cause(ctx)
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
		g.app.excluded, g.replaced = false, false
		g.updateEligibility()
	})
}
