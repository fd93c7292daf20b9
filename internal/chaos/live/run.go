package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/command"
)

// Run injects faults into a group, or into the candidates of another leader.
type Run struct {
	Client  client.WithWatch
	Subject Subject
	// OperatorNamespace is the namespace of the operator. It is empty if that is unknown.
	OperatorNamespace string

	Seed   uint64
	Faults int
	Kinds  []chaos.Kind
	// Pause is the time between two faults.
	Pause time.Duration
	// Timeout limits the time until the group has settled after a fault.
	Timeout time.Duration
	// Machines controls the machines of the cluster. It is nil if they can't be controlled.
	Machines Machines
	// Check checks the workload after each fault. It is nil if there is nothing to check.
	Check func(context.Context) error
	// Printf prints one line of progress.
	Printf func(format string, args ...any)

	observer *Observer
	result   *chaos.Result
	// eligible is the number of eligible members before the first fault.
	eligible int
}

// The limits of waits.
const (
	// actionTimeout limits the time to inject or undo a fault. Neither is cut short when the run is interrupted:
	// afterwards, it must be known whether there was a fault.
	actionTimeout = time.Minute
	// pollInterval is the interval at which objects are read that aren't watched.
	pollInterval = 500 * time.Millisecond
)

// errViolated ends a run after which the group didn't settle.
var errViolated = errors.New("it didn't settle")

// Do runs all faults. It returns what it has even if ctx ends, which interrupts the run. The error is nil if invariants
// were violated, and if the run was interrupted, unless a fault remains.
func (r *Run) Do(ctx context.Context) (*chaos.Result, error) {
	end := r.observe(ctx)
	defer end()
	err := r.begin(ctx)
	for i, step := range chaos.Schedule(r.Seed, r.Kinds, r.Faults) {
		if err != nil {
			break
		}
		wait(ctx, step.Jitter)
		if i > 0 {
			wait(ctx, r.Pause)
		}
		if err = ctx.Err(); err == nil {
			err = r.round(ctx, i+1, step.Kind)
		}
	}
	r.checkRecord(r.observer.Begin())
	return r.finished(ctx, err)
}

// Observe injects nothing. It judges which processes led during this time, while something else injects faults, and
// afterwards until the subject has settled.
func (r *Run) Observe(ctx context.Context, duration time.Duration) (*chaos.Result, error) {
	end := r.observe(ctx)
	defer end()
	r.result.ObservedMillis = duration.Milliseconds()
	err := r.begin(ctx)
	if err == nil {
		r.Printf("%s has settled; observing for %s", r.Subject, duration)
		r.observer.Begin()
		r.observer.SetFault(time.Now(), nil, false)
		wait(ctx, duration)
		r.observer.undone()
		settled := r.settles(ctx)
		changes, violations := r.observer.Begin().ObservedChanges(r.Subject.hasSides())
		r.result.Faults = append(r.result.Faults, changes...)
		for _, v := range violations {
			r.report(v)
		}
		if !settled {
			err = r.unsettled(ctx)
		}
	}
	return r.finished(ctx, err)
}

// observe starts to observe the subject. The function that it returns ends that.
func (r *Run) observe(ctx context.Context) (end func()) {
	r.result = &chaos.Result{
		Namespace: r.Subject.namespace(), Seed: r.Seed, Violations: []chaos.Violation{}, Faults: []chaos.Fault{},
	}
	r.Subject.describe(r.result)
	r.observer = NewObserver(r.Client, r.Subject)
	observing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	observed := make(chan struct{})
	go func() {
		defer close(observed)
		r.observer.Run(observing)
	}()
	return func() { cancel(); <-observed }
}

// finished completes the result of a run that ended with err.
func (r *Run) finished(ctx context.Context, err error) (*chaos.Result, error) {
	r.result.Summary = chaos.Summarize(r.result.Faults)
	switch {
	case errors.Is(err, errViolated):
		return r.result, nil
	case err != nil && ctx.Err() != nil:
		r.result.Interrupted = true
		if _, remains := errors.AsType[*remainsError](err); !remains {
			err = nil
		}
	}
	return r.result, err
}

// begin waits until the group is observed and has settled.
func (r *Run) begin(ctx context.Context) error {
	if !r.settles(ctx) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%s must settle before the first fault: %s", r.Subject, describe(r.problems()))
	}
	state := inspect(r.observer, func(_ *chaos.Record, s *chaos.State) chaos.State { return *s })
	r.result.Members, r.eligible = state.Members, state.Eligible()
	return nil
}

func (r *Run) awaitSettled(ctx context.Context) bool {
	settled := func(_ *chaos.Record, s *chaos.State) bool { return r.isSettled(s) }
	soon, cancel := context.WithTimeout(ctx, r.slow())
	defer cancel()
	if r.observer.Await(soon, settled) {
		return true
	}
	if ctx.Err() == nil {
		r.reportSlow(ctx)
	}
	return r.observer.Await(ctx, settled)
}

// isSettled reports whether the group has settled with at least as many members as at the beginning, of which as many
// are eligible.
func (r *Run) isSettled(s *chaos.State) bool {
	return s.Members >= max(1, r.result.Members) && s.Eligible() >= r.eligible && len(s.Problems()) == 0
}

func (r *Run) problems() []chaos.Problem {
	return inspect(r.observer, func(_ *chaos.Record, s *chaos.State) []chaos.Problem { return s.Problems() })
}

func describe(problems []chaos.Problem) string {
	var texts []string
	for _, p := range problems {
		texts = append(texts, p.Detail)
	}
	return strings.Join(texts, "; ")
}

// round injects one fault, waits until the group has settled, and checks the invariants.
func (r *Run) round(ctx context.Context, number int, kind chaos.Kind) error {
	if err := r.settleAgain(ctx); err != nil {
		return err
	}
	if err := r.replaceRestarted(ctx, kind.Name); err != nil {
		return fmt.Errorf("before fault %d (%s): %w", number, kind.Name, command.SingleLine(err))
	}
	state := inspect(r.observer, func(_ *chaos.Record, s *chaos.State) chaos.State { return *s })
	targets := chaos.Victims(kind.Name, &state)
	f := chaos.Fault{Number: number, Kind: kind.Name, At: time.Now()}
	if f.Refused = chaos.Obstacle(kind, &state, targets, r.Subject.hasSides()); f.Refused != "" {
		r.result.Faults = append(r.result.Faults, f)
		r.print(&f)
		return nil
	}
	affected := map[string]bool{}
	for _, p := range targets {
		affected[p.UID] = true
		f.Victims = append(f.Victims, p.Pod)
	}
	r.checkRecord(r.observer.Begin())
	r.observer.SetFault(time.Now(), affected, kind.Ousts)
	elected := true
	acting, cancel := context.WithTimeout(context.WithoutCancel(ctx), actionTimeout)
	done, err := r.inject(acting, kind.Name, targets)
	cancel()
	if err == nil {
		f.At = done.at
		r.observer.SetFault(done.at, affected, kind.Ousts)
		elected = r.awaitElection(ctx, kind, &f)
		wait(ctx, done.hold)
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		f.Refused, err = refused.reason, nil
	}
	if done.undo != nil {
		err = errors.Join(err, r.undo(ctx, &done, kind))
		r.observer.undone()
	}
	if err != nil {
		return fmt.Errorf("fault %d (%s): %w", number, kind.Name, command.SingleLine(err))
	}
	if !elected {
		r.result.Faults = append(r.result.Faults, f)
		return errViolated
	}
	return r.finish(ctx, &f, done)
}

// settleAgain waits for a group that doesn't settle any more since the last fault, for example because the machine is
// overloaded. If that lasts, it ends the run: a fault would harm a group that is broken, or be refused, as if no
// invariant were violated.
func (r *Run) settleAgain(ctx context.Context) error {
	if r.settles(ctx) {
		return nil
	}
	return r.unsettled(ctx)
}

// settles waits until the subject has settled, and reports whether it does in time.
func (r *Run) settles(ctx context.Context) bool {
	settling, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return r.awaitSettled(settling)
}

// unsettled reports why the subject doesn't settle, unless the run was interrupted. It returns the error that ends the
// run.
func (r *Run) unsettled(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, p := range r.problems() {
		r.violated(r.last(), p)
	}
	return errViolated
}

// undo undoes a fault, also if the run was interrupted. It tries again: the API server may be away for a moment, and
// otherwise the fault would remain.
func (r *Run) undo(ctx context.Context, done *injection, kind chaos.Kind) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), actionTimeout)
	defer cancel()
	for {
		err := done.undo(ctx)
		if err == nil {
			return nil
		}
		wait(ctx, pollInterval)
		if apierrors.IsForbidden(err) || ctx.Err() != nil {
			return &remainsError{fmt.Errorf("cannot undo %s: %w", kind.Name, err)}
		}
	}
}

// remainsError means that a fault couldn't be undone.
type remainsError struct{ error }

func (e *remainsError) Unwrap() error { return e.error }

// awaitElection waits until the next coordinator is elected and known, if that is expected. It returns false if that
// didn't happen.
func (r *Run) awaitElection(ctx context.Context, kind chaos.Kind, f *chaos.Fault) bool {
	if kind.Expect != chaos.ElectionExpected {
		return true
	}
	electing, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	elected := r.observer.Await(electing, func(record *chaos.Record, _ *chaos.State) bool {
		return chaos.Measure(record).Missing == ""
	})
	if elected || ctx.Err() != nil {
		return true
	}
	t := inspect(r.observer, func(record *chaos.Record, _ *chaos.State) chaos.Times { return chaos.Measure(record) })
	r.violated(f, chaos.Problem{Invariant: chaos.Failover, Detail: fmt.Sprintf("within %s: %s", r.Timeout, t.Missing)})
	return false
}

// finish waits until the group has settled after a fault and records the measurements.
func (r *Run) finish(ctx context.Context, f *chaos.Fault, done injection) error {
	settling, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	recovered := awaitRecovered(settling, done)
	settled := r.awaitSettled(settling) && recovered
	if f.Refused == "" && settled {
		f.Settled = new(float64(time.Since(f.At).Milliseconds()))
	}
	r.observer.measure(f)
	r.result.Faults = append(r.result.Faults, *f)
	r.print(f)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !settled {
		for _, p := range r.problems() {
			r.violated(f, p)
		}
		if !recovered {
			r.violated(f, chaos.Problem{Invariant: chaos.Recovery, Detail: "what the fault broke isn't replaced within " +
				r.Timeout.String()})
		}
		return errViolated
	}
	if r.Check != nil {
		if err := r.Check(ctx); err != nil && ctx.Err() == nil {
			r.workloadViolated(f, chaos.Problem{Invariant: chaos.Workload, Detail: err.Error()})
		}
	}
	return nil
}

// awaitRecovered waits until what the fault broke, beside the group, works again, and reports whether it does before
// ctx ends.
func awaitRecovered(ctx context.Context, done injection) bool {
	for done.recovered != nil && !done.recovered(ctx) {
		if ctx.Err() != nil {
			return false
		}
		wait(ctx, pollInterval)
	}
	return true
}

// checkRecord checks the invariants that hold at every instant, from the last fault until now.
func (r *Run) checkRecord(record *chaos.Record) {
	last := r.last()
	for _, p := range record.Problems(r.Subject.hasSides()) {
		r.violated(last, p)
	}
	if last.Refused == "" {
		last.SetRecord(record)
	}
}

// last returns the last fault.
func (r *Run) last() *chaos.Fault {
	if n := len(r.result.Faults); n > 0 {
		return &r.result.Faults[n-1]
	}
	return &chaos.Fault{Kind: "none"}
}

func (r *Run) violated(f *chaos.Fault, p chaos.Problem) {
	r.report(chaos.Violation{Fault: f.Number, Kind: f.Kind, Problem: p})
}

func (r *Run) report(v chaos.Violation) {
	r.result.Violations = append(r.result.Violations, v)
	r.Printf("VIOLATED  %s", v)
}

// workloadViolated reports a problem once. What a workload has broken usually remains broken.
func (r *Run) workloadViolated(f *chaos.Fault, p chaos.Problem) {
	if !slices.ContainsFunc(r.result.Violations, func(v chaos.Violation) bool { return v.Problem == p }) {
		r.violated(f, p)
	}
}

func (r *Run) print(f *chaos.Fault) {
	text := fmt.Sprintf("fault %d of %d: %s", f.Number, r.Faults, f.Kind)
	if len(f.Victims) > 0 {
		text += " " + strings.Join(f.Victims, ", ")
	}
	switch {
	case f.Refused != "":
		text += ": refused: " + f.Refused
	case f.Elected != nil:
		text += fmt.Sprintf(": %s elected after %.0f ms", f.Coordinator, *f.Elected)
	default:
		text += ": no election"
	}
	if f.Settled != nil {
		text += fmt.Sprintf(", settled after %.1f s", *f.Settled/1000)
	}
	r.Printf("%s", text)
}
