package pod

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// board is where the reports of all groups are put up, for whoever reads them.
type board struct {
	agent control.Agent

	mu sync.Mutex
	// present are the latest reports, by group.
	present map[string]control.Report
	readers map[*reader]bool
	// turned is closed, and another one made, when the first reader has come or the
	// last one gone.
	turned chan struct{}
}

func newBoard(agent control.Agent) *board {
	return &board{agent: agent, present: map[string]control.Report{}, readers: map[*reader]bool{}, turned: make(chan struct{})}
}

// reader is somebody who is told all, at the speed at which that is fetched.
type reader struct {
	board *board
	// waiting is, under the board's lock, what hasn't been fetched: of each group
	// one report at most, and that it was left.
	waiting []notice
	more    chan struct{}
}

// notice is an event, and what group it is about.
type notice struct {
	api.Event

	group string
}

// post puts a report up. It doesn't wait for anybody.
func (b *board) post(report control.Report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.present[report.Group] = report
	b.tell(notice{api.Event{Kind: control.EventGroup, Data: report}, report.Group})
}

// left takes a group's report down, if there is one.
func (b *board) left(group string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	report, known := b.present[group]
	if !known {
		return
	}
	delete(b.present, group)
	b.tell(notice{api.Event{Kind: control.EventLeft, Data: control.Left{Group: group, UID: report.UID}}, group})
}

// tell has all readers know. What is outdated by that is of no interest any more.
func (b *board) tell(news notice) {
	for r := range b.readers {
		r.waiting = slices.DeleteFunc(r.waiting, func(old notice) bool {
			return old.group == news.group && old.Kind == control.EventGroup
		})
		r.waiting = append(r.waiting, news)
		select {
		case r.more <- struct{}{}:
		default:
		}
	}
}

// Reports is for api.Subordinate.
func (b *board) Reports() api.Reports {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &reader{board: b, more: make(chan struct{}, 1)}
	for _, group := range slices.Sorted(maps.Keys(b.present)) {
		r.waiting = append(r.waiting, notice{api.Event{Kind: control.EventGroup, Data: b.present[group]}, group})
	}
	r.waiting = append(r.waiting, notice{api.Event{Kind: control.EventCurrent, Data: b.agent}, ""})
	b.readers[r] = true
	if len(b.readers) == 1 {
		b.turn()
	}
	return r
}

// attended reports whether anybody reads, and returns what is closed when that has
// changed.
func (b *board) attended() (bool, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.readers) > 0, b.turned
}

// turn is called with the lock held.
func (b *board) turn() {
	close(b.turned)
	b.turned = make(chan struct{})
}

// Next is for api.Reports.
func (r *reader) Next(ctx context.Context) (api.Event, error) {
	for {
		if e, ok := r.take(); ok {
			return e, nil
		}
		select {
		case <-r.more:
		case <-ctx.Done():
			return api.Event{}, ctx.Err()
		}
	}
}

func (r *reader) take() (api.Event, bool) {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	if len(r.waiting) == 0 {
		return api.Event{}, false
	}
	e := r.waiting[0].Event
	r.waiting = slices.Delete(r.waiting, 0, 1)
	return e, true
}

// Close is for api.Reports.
func (r *reader) Close() {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	if !r.board.readers[r] {
		return
	}
	delete(r.board.readers, r)
	if len(r.board.readers) == 0 {
		r.board.turn()
	}
}
