package pod

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/state"
)

const diskRetryDelay = time.Second

// groupWorker applies the documents of one group, one after the other, and leaves the
// group when the operator requests it.
type groupWorker struct {
	*groupManager

	group string
	// queued is sent when a task was enqueued.
	queued signal

	mu    sync.Mutex
	queue []*task
	// stored identifies the stored document. failedRevision is the revision of the last
	// document if it could not be applied, else 0.
	stored         storedDocument
	failedRevision int64

	// The goroutine of run owns the following fields.

	// applied has the settings that were applied last, nil if they are unknown.
	applied       *config.Group
	participating bool
	// participatedUntil is when the agent last left the group, or when the process started.
	// The agent's grants expire a lease after that.
	participatedUntil time.Time
	// retryStored receives a value when the stored document is due, which was ahead of the
	// clock. It is nil if there is none.
	retryStored <-chan time.Time
	// failed is the last document if a disk error prevented that it was applied, else nil.
	// retryFailed receives a value when it is due again.
	failed      *task
	retryFailed <-chan time.Time
}

type storedDocument struct {
	uid      string
	revision int64
	// inForce is false if there is no document, or if the agent has left the group.
	inForce bool
}

func identify(r state.Record) storedDocument {
	return storedDocument{r.UID, r.Revision, r.Document != ""}
}

const cannotLoad = "cannot load stored document; starting without it"

// newGroupWorker creates a worker, with the stored document in its queue.
func newGroupWorker(m *groupManager, group string) *groupWorker {
	w := &groupWorker{groupManager: m, group: group, queued: newSignal(), participatedUntil: time.Now()}
	record, err := m.store.Load(group)
	if err != nil {
		m.log.Error(cannotLoad, "group", group, "error", err)
	}
	if err := checkRevision(record.Revision); err != nil {
		m.log.Error(cannotLoad, "group", group, "error", err)
		record.Revision, record.Document = 0, "" // UID remains, for the grants in that group.
		w.retryStored = time.After(clockInterval)
	}
	w.stored = identify(record)
	if t := w.taskOf(record); t != nil {
		w.applied = t.group
		w.queue = []*task{t}
	}
	return w
}

// taskOf returns the task to apply a stored document, nil if there is none.
func (w *groupWorker) taskOf(stored state.Record) *task {
	const source = "the stored document"
	if stored.Document == "" {
		return nil
	}
	g, err := config.ParseDocument(source, []byte(stored.Document))
	if err != nil {
		w.log.Error(cannotLoad, "group", w.group, "error", err)
		return nil
	}
	g.Probe = w.probe
	return &task{source: source, group: g, document: []byte(stored.Document)}
}

// loadStoredAgain applies the stored document that was ahead of the clock, once the clock has
// been corrected. The file has another document if the worker has stored one since.
func (w *groupWorker) loadStoredAgain() {
	stored, err := w.store.Load(w.group)
	if err == nil {
		err = checkRevision(stored.Revision)
	}
	if err != nil {
		w.retryStored = time.After(clockInterval)
		return
	}
	w.retryStored = nil
	if t := w.taskOf(stored); t != nil {
		_, _ = w.enqueue(t) // It is refused if there is a newer one.
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stored.revision = max(w.stored.revision, stored.Revision) // The agent had left the group.
}

func (w *groupWorker) isEmpty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.stored.inForce && len(w.queue) == 0
}

// run processes the queue until ctx ends.
func (w *groupWorker) run(ctx context.Context, a *agent.Agent) {
	for {
		if w.retryStored != nil {
			w.loadStoredAgain()
		}
		t := w.dequeue()
		if t == nil {
			select {
			case <-w.queued:
				continue
			case <-w.retryStored:
				continue
			case <-w.retryFailed:
				t = w.failed
			case <-ctx.Done():
				return
			}
		}
		if t.group == nil {
			t.finish(w.leaveForGood(ctx, a, t.leaveUID, t.leaveRevision))
			continue
		}
		w.failed, w.retryFailed = nil, nil
		err := w.applyDocument(ctx, a, t)
		if ctx.Err() != nil {
			t.finish(ctx.Err())
			return
		}
		w.recordResult(t, err)
		if err != nil && agent.Temporary(err) {
			w.failed = &task{source: t.source, group: t.group, document: t.document}
			w.retryFailed = time.After(diskRetryDelay)
		} else if err != nil {
			err = fmt.Errorf("%w: %w", api.ErrInvalidDocument, err)
		}
		t.finish(err)
	}
}

// applyDocument switches from the stored document to another one. If the new one has
// another UID, the agent first leaves the previous group.
func (w *groupWorker) applyDocument(ctx context.Context, a *agent.Agent, t *task) error {
	next, before := t.group, w.storedDocument()
	if before.uid != "" && before.uid != next.UID {
		if err := w.leaveReplacedGroup(ctx, a, before.uid); err != nil {
			return err
		}
	} else if w.applied != nil {
		if err := next.CheckSafetyChange(*w.applied); err != nil {
			return err
		}
	}
	return w.applySettings(ctx, a, t)
}

// applySettings stores a document and applies its settings. If neither the list nor the previous one has this process,
// the agent leaves the group. In any other case, list and document are durable before the agent applies the settings.
func (w *groupWorker) applySettings(ctx context.Context, a *agent.Agent, t *task) error {
	next := t.group
	record := state.Record{UID: next.UID, Lease: next.Safety.Lease, Document: string(t.document), Revision: next.Revision}
	if !next.List.Has(w.self) && (next.List.Previous == nil || !next.List.Previous.Has(w.self)) {
		w.stopParticipating(ctx, a)
		w.applied = next
		if err := w.store.Save(w.group, record); err != nil {
			return err
		}
		w.setStored(identify(record))
		return nil
	}
	prepared, err := a.PrepareGroup(*next, t.document)
	if err != nil {
		return err
	}
	w.setStored(identify(record))
	err = a.ApplyGroup(ctx, prepared)
	if err == nil {
		w.applied = next
	}
	w.updateParticipating(a)
	return err
}

// updateParticipating updates participating after ApplyGroup, which may have joined or left the group.
func (w *groupWorker) updateParticipating(a *agent.Agent) {
	_, participating := a.Find(w.group)
	if w.participating && !participating {
		w.reports.groupLeft(w.group)
	}
	w.participating = participating
}

func (w *groupWorker) recordResult(t *task, err error) {
	w.mu.Lock()
	w.failedRevision = 0
	if err != nil {
		w.failedRevision = t.group.Revision
	}
	w.mu.Unlock()
	if err == nil {
		w.clearProblems(w.group)
		return
	}
	w.addProblem(t.source, w.group, err)
}

// leaveReplacedGroup leaves a group that another one of the same name replaces. It waits until the agent's grants in
// the previous group have expired: otherwise both groups could have a coordinator at the same time.
func (w *groupWorker) leaveReplacedGroup(ctx context.Context, a *agent.Agent, uid string) error {
	w.stopParticipating(ctx, a)
	stored, err := w.store.Load(w.group)
	if err != nil {
		return err
	}
	until := w.participatedUntil
	if stored.UID == uid {
		until = until.Add(leaseOnAnyClock(stored.Lease))
	}
	select {
	case <-time.After(time.Until(until)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leaseOnAnyClock returns a time that is longer than the lease on any member's clock.
func leaseOnAnyClock(lease time.Duration) time.Duration { return lease + lease/8 }

// leaveForGood leaves the group with this UID, and removes its document and its list. A document
// with a higher revision was published after the decision that the agent has to leave.
func (w *groupWorker) leaveForGood(ctx context.Context, a *agent.Agent, uid string, revision int64) error {
	before := w.storedDocument()
	failed := w.failed != nil && w.failed.group.UID == uid && w.failed.group.Revision <= revision
	if failed {
		w.retryFailed = nil
	}
	if before.uid != uid || !before.inForce || before.revision > revision {
		return nil // The agent has left that group, or was never in it, or joined it again.
	}
	w.stopParticipating(ctx, a)
	w.applied = nil
	left := storedDocument{uid: uid, revision: revision}
	if err := w.store.Leave(state.Key{Group: w.group, UID: uid}, left.revision); err != nil {
		return err
	}
	w.setStored(left)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failedRevision = 0
	return nil
}

func (w *groupWorker) stopParticipating(ctx context.Context, a *agent.Agent) {
	if !w.participating {
		return
	}
	if err := a.LeaveGroup(ctx, w.group); err != nil {
		return // The agent is closed, and has left all groups.
	}
	w.participating, w.participatedUntil = false, time.Now()
	w.reports.groupLeft(w.group)
}

func (w *groupWorker) storedDocument() storedDocument {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stored
}

func (w *groupWorker) setStored(document storedDocument) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stored = document
}

// maxQueued is the maximum number of tasks in the queue of a group. Successive documents of the same UID are merged, so
// the queue grows only if documents alternate with requests to leave the group, or UIDs change.
const maxQueued = 16

var errBusy = errors.New("too many tasks are queued for this group")

type task struct {
	source   string
	group    *config.Group
	document []byte
	// leaveUID is the UID of the group to leave, if group is nil, and leaveRevision the highest
	// revision that the agent leaves.
	leaveUID      string
	leaveRevision int64
	// done has a channel for each caller that waits for the result.
	done []chan error
}

func (t *task) finish(err error) {
	for _, done := range t.done {
		done <- err
	}
}

// enqueue adds a task to the queue. The channel returns its result. A document that is older than the newest one is
// refused, and a newer document replaces the last one in the queue.
func (w *groupWorker) enqueue(t *task) (<-chan error, error) {
	done := make(chan error, 1)
	t.done = []chan error{done}
	w.mu.Lock()
	defer w.mu.Unlock()
	newest, last := w.stored.revision, (*task)(nil)
	if n := len(w.queue); n > 0 {
		last = w.queue[n-1]
	}
	if last != nil && last.group != nil {
		newest = max(newest, last.group.Revision)
	}
	switch {
	case t.group == nil:
	case t.group.Revision < newest:
		return nil, api.OutdatedError{Lowest: newest, Got: t.group.Revision}
	case t.group.Revision > newest || w.failedRevision == newest:
	case last != nil && last.group != nil && last.group.Revision == newest:
		last.done = append(last.done, done) // The same document is queued already.
		return done, nil
	case !w.stored.inForce:
		return nil, api.OutdatedError{Lowest: newest + 1, Got: newest} // The agent has left.
	default:
		done <- nil // The same document has been applied already.
		return done, nil
	}
	switch {
	case t.group != nil && last != nil && last.group != nil && last.group.UID == t.group.UID:
		t.done = append(t.done, last.done...)
		w.queue[len(w.queue)-1] = t
	case len(w.queue) == maxQueued:
		return nil, errBusy
	default:
		w.queue = append(w.queue, t)
	}
	w.queued.send()
	return done, nil
}

func (w *groupWorker) dequeue() *task {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return nil
	}
	t := w.queue[0]
	w.queue = w.queue[1:]
	return t
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
