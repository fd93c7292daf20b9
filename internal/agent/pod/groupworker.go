package pod

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/state"
)

const diskRetryDelay = time.Second

// groupWorker keeps the agent's part in one group as the operator wants it. One goroutine calls reconcile, which makes
// what is stored and in force equal to what is desired. It may be called at any time, and may end anywhere: the next
// process begins with what is stored, and the operator repeats what it wants.
type groupWorker struct {
	*groupManager

	group string
	// changed is sent when desired has changed.
	changed signal

	mu sync.Mutex
	// desired is what the operator wants. pending: it isn't in force yet, and hasn't been refused. refused is set if what
	// is stored can't be applied.
	desired          *target
	pending, refused bool
	// waiting has a channel for each caller that waits for desired.
	waiting []chan error
	// problem is why the last document isn't in force, or "".
	problem string

	// The goroutine of run owns the following fields.

	// stored is what the disk has. unread: that can't be read, or is ahead of the clock. logged is the last reason.
	stored *target
	unread bool
	logged string
	// participatedUntil is when the agent last left the group, or when the process started. The agent's grants expire a
	// lease after that.
	participatedUntil time.Time
}

// target is a document of the group, or, without one, that the agent isn't in the group with this UID: documents up to
// the revision are outdated.
type target struct {
	source   string
	uid      string
	revision int64
	document []byte
	// settings are those in the document, nil if they are invalid.
	settings *config.Group
}

// participant is the part of agent.Agent by which a worker changes what the agent does.
type participant interface {
	Find(group string) (*group.Group, bool)
	StoreGroup(next config.Group, document []byte) (config.Group, error)
	ApplyGroup(ctx context.Context, stored config.Group) error
	LeaveGroup(ctx context.Context, group string) error
}

// newGroupWorker creates a worker that wants what is stored.
func newGroupWorker(m *groupManager, group string) *groupWorker {
	w := &groupWorker{
		groupManager: m, group: group, changed: newSignal(), participatedUntil: time.Now(),
		desired: &target{}, stored: &target{},
	}
	w.load()
	return w
}

// load makes the stored document the desired one. If it is ahead of the clock, this succeeds once the clock has been
// corrected. It does nothing if there is a newer document.
func (w *groupWorker) load() {
	const source = "the stored document"
	record, err := w.store.Load(w.group)
	if err == nil {
		err = checkRevision(record.Revision)
	}
	// The UID remains, for the grants in that group.
	stored, unread := &target{source: source, uid: record.UID}, err != nil
	if !unread {
		stored.revision, stored.document = record.Revision, []byte(record.Document)
		if record.Document != "" {
			stored.settings, err = w.parse(source, stored.document)
		}
	}
	if err != nil && err.Error() != w.logged {
		w.logged = err.Error()
		w.log.Error("cannot load stored document; starting without it", "group", w.group, "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.pending {
		w.unread, w.stored, w.desired, w.pending = unread, stored, stored, stored.settings != nil
	}
}

func (w *groupWorker) isEmpty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.desired.document) == 0
}

// want makes next the desired target, unless the agent knows a newer document, and waits until it is in force.
func (w *groupWorker) want(ctx context.Context, next *target) error {
	done, err := w.replace(next)
	if done == nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err() // The agent applies the document nevertheless.
	}
}

// replace replaces the desired target. It returns a channel for the result, nil if there is nothing to do.
func (w *groupWorker) replace(next *target) (<-chan error, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.desired
	switch leaves, left := next.document == nil, len(known.document) == 0; {
	case leaves && (known.uid != next.uid || left && !w.pending || known.revision > next.revision):
		return nil, nil // The agent has left that group, or was never in it, or joined it again.
	case leaves:
	case next.revision < known.revision:
		return nil, api.OutdatedError{Lowest: known.revision, Got: next.revision}
	case next.revision == known.revision && known.settings == nil:
		return nil, api.OutdatedError{Lowest: known.revision + 1, Got: next.revision}
	case next.revision == known.revision && !w.pending && !w.refused:
		return nil, nil
	}
	done := make(chan error, 1)
	w.desired, w.pending, w.waiting = next, true, append(w.waiting, done)
	w.changed.send()
	return done, nil
}

// run calls reconcile until ctx ends.
func (w *groupWorker) run(ctx context.Context, a participant) {
	for ctx.Err() == nil {
		var again <-chan time.Time
		if delay := w.reconcile(ctx, a); delay > 0 {
			again = time.After(delay)
		}
		select {
		case <-w.changed:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// reconcile brings the desired target in force. It returns when it must be called again, 0 if only after a change.
func (w *groupWorker) reconcile(ctx context.Context, a participant) time.Duration {
	if w.unread {
		w.load()
	}
	w.mu.Lock()
	next, pending, waiting := w.desired, w.pending, w.waiting
	w.waiting = nil
	w.mu.Unlock()
	var err error
	if pending {
		if err = w.bring(ctx, a, next); ctx.Err() != nil {
			err = ctx.Err()
		} else {
			err = w.brought(next, err)
		}
	}
	for _, done := range waiting {
		done <- err
	}
	switch {
	case err != nil && agent.Temporary(err):
		return diskRetryDelay
	case w.unread:
		return clockInterval
	}
	return 0
}

// bring switches from the stored document to a target. The list and the document are durable before they are in force.
func (w *groupWorker) bring(ctx context.Context, a participant, next *target) error {
	stored := w.stored
	if stored.uid != "" && stored.uid != next.uid {
		if err := w.leaveReplacedGroup(ctx, a, stored.uid); err != nil {
			return err
		}
	} else if stored.settings != nil && next.settings != nil {
		if err := next.settings.CheckSafetyChange(*stored.settings); err != nil {
			return err
		}
	}
	switch {
	case next.settings == nil:
		w.leave(ctx, a)
		return w.forget(&target{uid: stored.uid, revision: next.revision})
	case !next.settings.List.Concerns(w.self):
		w.leave(ctx, a)
		return w.save(next)
	}
	settings, err := a.StoreGroup(*next.settings, next.document)
	if err != nil {
		return err
	}
	w.unread, w.stored = false, next
	err = a.ApplyGroup(ctx, settings)
	if _, participates := a.Find(w.group); !participates {
		w.left()
	}
	return err
}

// brought records the result of bring, and returns it for the callers that wait. A target that can't be in force isn't
// desired any more, unless the disk is the reason: then it is tried again.
func (w *groupWorker) brought(next *target, err error) error {
	w.mu.Lock()
	before := w.problem
	w.problem = ""
	if err != nil {
		w.problem = fmt.Sprintf("group %s: %s", w.group, err)
	}
	changed := w.problem != before
	if temporary := agent.Temporary(err); !temporary && w.desired == next {
		w.desired, w.pending, w.refused = w.stored, false, err != nil && w.stored == next
	}
	w.mu.Unlock()
	if changed {
		w.publishProblems()
	}
	switch {
	case err == nil:
		return nil
	case changed && next.settings != nil:
		w.log.Error("refused document; continuing with the previous one", "group", w.group, "source", next.source,
			"error", err)
	case changed:
		w.log.Error("cannot leave group", "group", w.group, "error", err)
	}
	if agent.Temporary(err) || next.settings == nil {
		return err
	}
	return fmt.Errorf("%w: %w", api.ErrInvalidDocument, err)
}

// save stores the document of a group that the agent isn't in.
func (w *groupWorker) save(next *target) error {
	err := w.store.Save(w.group, state.Record{
		UID: next.uid, Lease: next.settings.Safety.Lease, Document: string(next.document), Revision: next.revision,
	})
	if err == nil {
		w.unread, w.stored = false, next
	}
	return err
}

// forget removes the document and the list of the group, if there are any. What was granted remains.
func (w *groupWorker) forget(left *target) error {
	if left.uid != "" {
		if err := w.store.Leave(state.Key{Group: w.group, UID: left.uid}, left.revision); err != nil {
			return err
		}
	}
	w.unread, w.stored = false, left
	return nil
}

// leaveReplacedGroup leaves a group that another one of the same name replaces. It waits until the agent's grants in
// the previous group have expired: otherwise both groups could have a coordinator at the same time.
func (w *groupWorker) leaveReplacedGroup(ctx context.Context, a participant, uid string) error {
	w.leave(ctx, a)
	stored, err := w.store.Load(w.group)
	if err != nil {
		return err
	}
	until := w.participatedUntil
	if stored.UID == uid {
		until = until.Add(stored.Lease + stored.Lease/8) // longer than the lease on any member's clock
	}
	select {
	case <-time.After(time.Until(until)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave leaves the group, if the agent is in it.
func (w *groupWorker) leave(ctx context.Context, a participant) {
	if _, participates := a.Find(w.group); participates && a.LeaveGroup(ctx, w.group) == nil {
		w.left() // Otherwise the agent is closed, and has left all groups.
	}
}

func (w *groupWorker) left() {
	w.participatedUntil = time.Now()
	w.reports.groupLeft(w.group)
}

// signal wakes the goroutine that receives from it. Signals that the goroutine hasn't received yet are merged into one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// send never blocks.
func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
