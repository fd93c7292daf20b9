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
	// queueMax is how much can wait at a desk: of documents in a row, the newest.
	queueMax = 16
	// again is how long to wait with what the disk has refused.
	again = time.Second
)

var errBusy = errors.New("too much waits for this group already")

// desk takes care of one group: it goes from one document to the next, and leaves
// when it is told to.
type desk struct {
	*registrar

	group string
	tasks sync.WaitGroup
	wake  chan struct{}

	mu    sync.Mutex
	queue []*task
	// taken is what is kept on disk, and failed the revision of what was not taken
	// over all the same, or last.
	taken  kept
	failed int64

	// What follows belongs to the goroutine of work.

	// before is what was taken over last, nil if that isn't known.
	before *config.Group
	// runs: the agent takes part.
	runs bool
	// since is when it took part last, or the process started: what it promised
	// before lasts for a lease from then on.
	since time.Time
}

// task is a document to be taken over, or a group to be left.
type task struct {
	source   string
	group    *config.Group
	document []byte
	// leave is the UID of the group to be left.
	leave string
	done  []chan error
}

func (t *task) tell(err error) {
	for _, done := range t.done {
		done <- err
	}
}

func newDesk(r *registrar, group string) *desk {
	d := &desk{registrar: r, group: group, wake: make(chan struct{}, 1), since: time.Now()}
	var err error
	if d.taken, err = r.keeper.load(group); err != nil {
		r.log.Error("begins without the document that it has kept", "group", group, "error", err)
	}
	if err := plausible(d.taken.Revision); err != nil {
		r.log.Error("begins without the document that it has kept", "group", group, "error", err)
		d.taken.Revision, d.taken.Document = 0, "" // What it promised under the UID counts.
	}
	if d.taken.Document == "" {
		return d
	}
	g, err := config.ParseDocument(r.keeper.path(group), []byte(d.taken.Document))
	if err != nil {
		r.log.Error("begins without the document that it has kept", "group", group, "error", err)
		return d
	}
	g.Probe = r.probe
	d.before = g
	d.queue = []*task{{source: "kept", group: g, document: []byte(d.taken.Document)}}
	return d
}

// empty reports whether nothing is known of the group, or it was left.
func (d *desk) empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken.Document == "" && len(d.queue) == 0
}

// add gives the desk something to do, and tells when that is done. A document that
// isn't news is refused; of two in a row, the newer one counts.
func (d *desk) add(t *task) (<-chan error, error) {
	done := make(chan error, 1)
	t.done = []chan error{done}
	d.mu.Lock()
	defer d.mu.Unlock()
	newest, last := d.taken.Revision, (*task)(nil)
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
	case t.group.Revision > newest || d.failed == newest:
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
	case len(d.queue) == queueMax:
		return nil, errBusy
	default:
		d.queue = append(d.queue, t)
	}
	d.hurry()
	return done, nil
}

func (d *desk) hurry() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// next is what is to be done next, nil if there is nothing.
func (d *desk) next() *task {
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
func (d *desk) work(ctx context.Context, a *agent.Agent) {
	for {
		t := d.next()
		if t == nil {
			select {
			case <-d.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if t.group == nil {
			t.tell(d.leave(ctx, a, t.leave))
			continue
		}
		err := d.take(ctx, a, t)
		if ctx.Err() != nil {
			t.tell(ctx.Err())
			return
		}
		d.conclude(t, err)
		if err != nil && agent.Temporary(err) {
			time.AfterFunc(again, func() { _, _ = d.add(&task{source: t.source, group: t.group, document: t.document}) })
		} else if err != nil {
			err = fmt.Errorf("%w: %w", api.ErrInvalidDocument, err)
		}
		t.tell(err)
	}
}

// take goes over to a document.
func (d *desk) take(ctx context.Context, a *agent.Agent, t *task) error {
	next, before := t.group, d.known()
	another := before.UID != "" && before.UID != next.UID
	if another {
		if err := d.forsake(ctx, a, before); err != nil {
			return err
		}
	} else if d.before != nil {
		if err := next.CheckSafetyChange(*d.before); err != nil {
			return err
		}
	}
	err := d.follow(ctx, a, t)
	if err == nil && another {
		err = d.lists.Remove(state.Key{Group: d.group, UID: before.UID})
	}
	return err
}

// follow does as the document says.
func (d *desk) follow(ctx context.Context, a *agent.Agent, t *task) error {
	next := t.group
	keep := func() error {
		return d.keep(kept{next.UID, next.Revision, next.Safety.Lease, string(t.document)})
	}
	if !next.List.Has(d.self) && (next.List.Previous == nil || !next.List.Previous.Has(d.self)) {
		d.stop(ctx, a)
		d.before = next
		return keep()
	}
	err := a.ApplyGroup(ctx, *next, keep)
	if _, takesPart := a.Find(d.group); d.runs && !takesPart {
		d.board.left(d.group)
		d.runs = false
	} else {
		d.runs = takesPart
	}
	if err == nil {
		d.before = next
	}
	return err
}

// conclude remembers what came of a document.
func (d *desk) conclude(t *task, err error) {
	d.mu.Lock()
	d.failed = 0
	if err != nil {
		d.failed = t.group.Revision
	}
	d.mu.Unlock()
	if err == nil {
		d.settle(d.group)
		return
	}
	d.note(t.source, d.group, err)
}

// forsake ends the part in another group of this name. That is over when nothing
// that was promised there is in force: the two mustn't both have a coordinator.
func (d *desk) forsake(ctx context.Context, a *agent.Agent, before kept) error {
	d.stop(ctx, a)
	select {
	case <-time.After(time.Until(d.since.Add(leaseAndMore(before.Lease)))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave ends the part in the group of this UID for good.
func (d *desk) leave(ctx context.Context, a *agent.Agent, uid string) error {
	before := d.known()
	if before.UID != uid || before.Document == "" {
		return nil // It is over, or it never was.
	}
	d.stop(ctx, a)
	d.before = nil
	before.Document = ""
	if err := d.keep(before); err != nil {
		return err
	}
	return d.lists.Remove(state.Key{Group: d.group, UID: uid})
}

// stop leaves the group, if the agent takes part.
func (d *desk) stop(ctx context.Context, a *agent.Agent) {
	if !d.runs {
		return
	}
	if err := a.LeaveGroup(ctx, d.group); err != nil {
		return // It ends anyway.
	}
	d.runs, d.since = false, time.Now()
	d.board.left(d.group)
}

func (d *desk) known() kept {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken
}

// keep remembers what was taken over.
func (d *desk) keep(of kept) error {
	if err := d.keeper.save(d.group, of); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken = of
	return nil
}
