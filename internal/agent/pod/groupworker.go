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

const (
	// maxQueued is how much can wait at a desk: of documents in a row, the newest.
	maxQueued = 16
	// again is how long to wait with what the disk has refused.
	diskRetryDelay = time.Second
)

var errBusy = errors.New("too much waits for this group already")

// desk takes care of one group: it goes from one document to the next, and leaves
// when it is told to.
type groupWorker struct {
	*groupManager

	group string
	tasks sync.WaitGroup
	wake  chan struct{}

	mu    sync.Mutex
	queue []*task
	// taken is what is kept on disk, and failed the revision of what was not taken
	// over all the same, or last.
	stored         groupRecord
	failedRevision int64

	// What follows belongs to the goroutine of work.

	// before is what was taken over last, nil if that isn't known.
	applied *config.Group
	// runs: the agent takes part.
	participating bool
	// since is when it took part last, or the process started: what it promised
	// before lasts for a lease from then on.
	participatedUntil time.Time
}

// task is a document to be taken over, or a group to be left.
type task struct {
	source   string
	group    *config.Group
	document []byte
	// leave is the UID of the group to be left.
	leaveUID string
	done     []chan error
}

func (t *task) finish(err error) {
	for _, done := range t.done {
		done <- err
	}
}

func newGroupWorker(r *groupManager, group string) *groupWorker {
	d := &groupWorker{groupManager: r, group: group, wake: make(chan struct{}, 1), participatedUntil: time.Now()}
	var err error
	if d.stored, err = r.documents.load(group); err != nil {
		r.log.Error("begins without the document that it has kept", "group", group, "error", err)
	}
	if err := checkRevision(d.stored.Revision); err != nil {
		r.log.Error("begins without the document that it has kept", "group", group, "error", err)
		d.stored.Revision, d.stored.Document = 0, "" // What it promised under the UID counts.
	}
	if d.stored.Document == "" {
		return d
	}
	g, err := config.ParseDocument(r.documents.path(group), []byte(d.stored.Document))
	if err != nil {
		r.log.Error("begins without the document that it has kept", "group", group, "error", err)
		return d
	}
	g.Probe = r.probe
	d.applied = g
	d.queue = []*task{{source: "kept", group: g, document: []byte(d.stored.Document)}}
	return d
}

// empty reports whether nothing is known of the group, or it was left.
func (d *groupWorker) isEmpty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stored.Document == "" && len(d.queue) == 0
}

// add gives the desk something to do, and tells when that is done. A document that
// isn't news is refused; of two in a row, the newer one counts.
func (d *groupWorker) enqueue(t *task) (<-chan error, error) {
	done := make(chan error, 1)
	t.done = []chan error{done}
	d.mu.Lock()
	defer d.mu.Unlock()
	newest, last := d.stored.Revision, (*task)(nil)
	if n := len(d.queue); n > 0 {
		last = d.queue[n-1]
	}
	if last != nil && last.group != nil {
		newest = max(newest, last.group.Revision)
	}
	switch {
	case t.group == nil:
	case t.group.Revision < newest:
		return nil, fmt.Errorf("%w: revision %d, and not %d", api.ErrOutdated, newest, t.group.Revision)
	case t.group.Revision > newest || d.failedRevision == newest:
	case last != nil && last.group != nil && last.group.Revision == newest:
		last.done = append(last.done, done) // It is the same.
		return done, nil
	default:
		done <- nil
		return done, nil
	}
	switch {
	case t.group != nil && last != nil && last.group != nil && last.group.UID == t.group.UID:
		t.done = append(t.done, last.done...)
		d.queue[len(d.queue)-1] = t
	case len(d.queue) == maxQueued:
		return nil, errBusy
	default:
		d.queue = append(d.queue, t)
	}
	d.notify()
	return done, nil
}

func (d *groupWorker) notify() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// next is what is to be done next, nil if there is nothing.
func (d *groupWorker) dequeue() *task {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) == 0 {
		return nil
	}
	t := d.queue[0]
	d.queue = d.queue[1:]
	return t
}

// work does one thing after the other.
func (d *groupWorker) run(ctx context.Context, a *agent.Agent) {
	for {
		t := d.dequeue()
		if t == nil {
			select {
			case <-d.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if t.group == nil {
			t.finish(d.leaveForGood(ctx, a, t.leaveUID))
			continue
		}
		err := d.apply(ctx, a, t)
		if ctx.Err() != nil {
			t.finish(ctx.Err())
			return
		}
		d.recordResult(t, err)
		if err != nil && agent.Temporary(err) {
			time.AfterFunc(diskRetryDelay, func() { _, _ = d.enqueue(&task{source: t.source, group: t.group, document: t.document}) })
		} else if err != nil {
			err = fmt.Errorf("%w: %w", api.ErrInvalidDocument, err)
		}
		t.finish(err)
	}
}

// take goes over to a document.
func (d *groupWorker) apply(ctx context.Context, a *agent.Agent, t *task) error {
	next, before := t.group, d.storedRecord()
	another := before.UID != "" && before.UID != next.UID
	if another {
		if err := d.leaveReplacedGroup(ctx, a, before); err != nil {
			return err
		}
	} else if d.applied != nil {
		if err := next.CheckSafetyChange(*d.applied); err != nil {
			return err
		}
	}
	err := d.applySettings(ctx, a, t)
	if err == nil && another {
		err = d.lists.Remove(state.Key{Group: d.group, UID: before.UID})
	}
	return err
}

// follow does as the document says.
func (d *groupWorker) applySettings(ctx context.Context, a *agent.Agent, t *task) error {
	next := t.group
	keep := func() error {
		return d.store(groupRecord{next.UID, next.Revision, next.Safety.Lease, string(t.document)})
	}
	if !next.List.Has(d.self) && (next.List.Previous == nil || !next.List.Previous.Has(d.self)) {
		d.stopParticipating(ctx, a)
		d.applied = next
		return keep()
	}
	err := a.ApplyGroup(ctx, *next, keep)
	if _, takesPart := a.Find(d.group); d.participating && !takesPart {
		d.reports.groupLeft(d.group)
		d.participating = false
	} else {
		d.participating = takesPart
	}
	if err == nil {
		d.applied = next
	}
	return err
}

// conclude remembers what came of a document.
func (d *groupWorker) recordResult(t *task, err error) {
	d.mu.Lock()
	d.failedRevision = 0
	if err != nil {
		d.failedRevision = t.group.Revision
	}
	d.mu.Unlock()
	if err == nil {
		d.clearProblems(d.group)
		return
	}
	d.addProblem(t.source, d.group, err)
}

// forsake ends the part in another group of this name. That is over when nothing
// that was promised there is in force: the two mustn't both have a coordinator.
func (d *groupWorker) leaveReplacedGroup(ctx context.Context, a *agent.Agent, before groupRecord) error {
	d.stopParticipating(ctx, a)
	select {
	case <-time.After(time.Until(d.participatedUntil.Add(leaseOnAnyClock(before.Lease)))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave ends the part in the group of this UID for good.
func (d *groupWorker) leaveForGood(ctx context.Context, a *agent.Agent, uid string) error {
	before := d.storedRecord()
	if before.UID != uid || before.Document == "" {
		return nil // It is over, or it never was.
	}
	d.stopParticipating(ctx, a)
	d.applied = nil
	before.Document = ""
	if err := d.store(before); err != nil {
		return err
	}
	return d.lists.Remove(state.Key{Group: d.group, UID: uid})
}

// stop leaves the group, if the agent takes part.
func (d *groupWorker) stopParticipating(ctx context.Context, a *agent.Agent) {
	if !d.participating {
		return
	}
	if err := a.LeaveGroup(ctx, d.group); err != nil {
		return // It ends anyway.
	}
	d.participating, d.participatedUntil = false, time.Now()
	d.reports.groupLeft(d.group)
}

func (d *groupWorker) storedRecord() groupRecord {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stored
}

// keep remembers what was taken over.
func (d *groupWorker) store(of groupRecord) error {
	if err := d.documents.save(d.group, of); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stored = of
	return nil
}
