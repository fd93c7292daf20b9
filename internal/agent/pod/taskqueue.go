package pod

import (
	"errors"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/config"
)

// maxQueued is the maximum number of tasks in the queue of a group. Successive documents
// of the same UID are merged, so the queue grows only if documents alternate with
// requests to leave the group, or UIDs change.
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

// enqueue adds a task to the queue. The channel returns its result. A document that is
// older than the newest one is refused, and a newer document replaces the last one in
// the queue.
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

// signal wakes the goroutine that receives from it. Signals that the goroutine hasn't
// received yet are merged into one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// send never blocks.
func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
