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
type reportHub struct {
	agent control.Agent

	mu sync.Mutex
	// present are the latest reports, by group.
	latest  map[string]control.Report
	readers map[*reportReader]bool
	// turned is closed, and another one made, when the first reader has come or the
	// last one gone.
	attendanceChanged chan struct{}
}

func newReportHub(agent control.Agent) *reportHub {
	return &reportHub{agent: agent, latest: map[string]control.Report{}, readers: map[*reportReader]bool{}, attendanceChanged: make(chan struct{})}
}

// reader is somebody who is told all, at the speed at which that is fetched.
type reportReader struct {
	hub *reportHub
	// waiting is, under the board's lock, what hasn't been fetched: of each group
	// one report at most, and that it was left.
	pending   []groupEvent
	available chan struct{}
}

// notice is an event, and what group it is about.
type groupEvent struct {
	api.Event

	group string
}

// post puts a report up. It doesn't wait for anybody.
func (b *reportHub) publish(report control.Report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.latest[report.Group] = report
	b.send(groupEvent{api.Event{Kind: control.EventGroup, Data: report}, report.Group})
}

// left takes a group's report down, if there is one.
func (b *reportHub) groupLeft(group string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	report, known := b.latest[group]
	if !known {
		return
	}
	delete(b.latest, group)
	b.send(groupEvent{api.Event{Kind: control.EventLeft, Data: control.Left{Group: group, UID: report.UID}}, group})
}

// tell has all readers know. What is outdated by that is of no interest any more.
func (b *reportHub) send(news groupEvent) {
	for r := range b.readers {
		r.pending = slices.DeleteFunc(r.pending, func(old groupEvent) bool {
			return old.group == news.group && old.Kind == control.EventGroup
		})
		r.pending = append(r.pending, news)
		select {
		case r.available <- struct{}{}:
		default:
		}
	}
}

// Reports is for api.Subordinate.
func (b *reportHub) Reports() api.Reports {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &reportReader{hub: b, available: make(chan struct{}, 1)}
	for _, group := range slices.Sorted(maps.Keys(b.latest)) {
		r.pending = append(r.pending, groupEvent{api.Event{Kind: control.EventGroup, Data: b.latest[group]}, group})
	}
	r.pending = append(r.pending, groupEvent{api.Event{Kind: control.EventCurrent, Data: b.agent}, ""})
	b.readers[r] = true
	if len(b.readers) == 1 {
		b.notifyAttendance()
	}
	return r
}

// attended reports whether anybody reads, and returns what is closed when that has
// changed.
func (b *reportHub) hasReaders() (bool, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.readers) > 0, b.attendanceChanged
}

// turn is called with the lock held.
func (b *reportHub) notifyAttendance() {
	close(b.attendanceChanged)
	b.attendanceChanged = make(chan struct{})
}

// Next is for api.Reports.
func (r *reportReader) Next(ctx context.Context) (api.Event, error) {
	for {
		if e, ok := r.pop(); ok {
			return e, nil
		}
		select {
		case <-r.available:
		case <-ctx.Done():
			return api.Event{}, ctx.Err()
		}
	}
}

func (r *reportReader) pop() (api.Event, bool) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if len(r.pending) == 0 {
		return api.Event{}, false
	}
	e := r.pending[0].Event
	r.pending = slices.Delete(r.pending, 0, 1)
	return e, true
}

// Close is for api.Reports.
func (r *reportReader) Close() {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if !r.hub.readers[r] {
		return
	}
	delete(r.hub.readers, r)
	if len(r.hub.readers) == 0 {
		r.hub.notifyAttendance()
	}
}
