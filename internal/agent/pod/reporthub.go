package pod

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// reportHub distributes the reports of all groups to the operator's streams.
type reportHub struct {
	agent control.Agent

	mu      sync.Mutex
	latest  map[string]control.Report
	readers map[*reportReader]bool
	// absence expires when there have been no readers for the time after.
	absence *time.Timer
	after   time.Duration
}

func newReportHub(agent control.Agent, absence time.Duration) *reportHub {
	return &reportHub{
		agent: agent, latest: map[string]control.Report{}, readers: map[*reportReader]bool{},
		absence: time.NewTimer(absence), after: absence,
	}
}

// reportReader is one stream of reports. Its reader may be slow: a new report of a group
// replaces the one that the reader hasn't fetched yet.
type reportReader struct {
	hub *reportHub
	// pending has the events that the reader hasn't fetched: at most one report for each
	// group, and the groups that were left. The hub's lock guards it.
	pending   []api.Event
	available signal
	ended     bool
}

// setGroups sets the groups that the agent can join. If they have changed, all streams end:
// the operator then connects again, and sees the certificate that names these groups.
func (h *reportHub) setGroups(groups []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Equal(h.agent.Groups, groups) {
		return
	}
	h.agent.Groups = groups
	for r := range h.readers {
		r.ended = true
		r.available.send()
	}
}

// publish publishes a report. It doesn't wait for readers.
func (h *reportHub) publish(report control.Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latest[report.Group] = report
	h.send(report.Group, api.Event{Kind: control.EventGroup, Data: report})
}

func (h *reportHub) groupLeft(group string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	report, known := h.latest[group]
	if !known {
		return
	}
	delete(h.latest, group)
	h.send(group, api.Event{Kind: control.EventLeft, Data: control.Left{Group: group, UID: report.UID}})
}

// send adds an event of a group for all readers, in place of a pending report. The caller holds the lock.
func (h *reportHub) send(group string, e api.Event) {
	for r := range h.readers {
		r.pending = append(slices.DeleteFunc(r.pending, func(old api.Event) bool {
			report, ok := old.Data.(control.Report)
			return ok && report.Group == group
		}), e)
		r.available.send()
	}
}

// Reports implements api.OperatorAgent.
func (h *reportHub) Reports() api.Reports {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &reportReader{hub: h, available: newSignal()}
	for _, group := range slices.Sorted(maps.Keys(h.latest)) {
		r.pending = append(r.pending, api.Event{Kind: control.EventGroup, Data: h.latest[group]})
	}
	r.pending = append(r.pending, api.Event{Kind: control.EventCurrent, Data: h.agent})
	h.readers[r] = true
	h.absence.Stop()
	return r
}

// awaitAbsence starts the timer again, if there are no readers.
func (h *reportHub) awaitAbsence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.readers) == 0 {
		h.absence.Reset(h.after)
	}
}

func (r *reportReader) Next(ctx context.Context) (api.Event, error) {
	for {
		e, ok, err := r.pop()
		if ok || err != nil {
			return e, err
		}
		select {
		case <-r.available:
		case <-ctx.Done(): // The last report of a process that ends may have come at the same time.
			if e, ok, err := r.pop(); ok || err != nil {
				return e, err
			}
			return api.Event{}, ctx.Err()
		}
	}
}

var errGroupsChanged = errors.New("the groups of the agent have changed")

func (r *reportReader) pop() (api.Event, bool, error) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	switch {
	case r.ended:
		return api.Event{}, false, errGroupsChanged
	case len(r.pending) == 0:
		return api.Event{}, false, nil
	}
	e := r.pending[0]
	r.pending = slices.Delete(r.pending, 0, 1)
	if report, ok := e.Data.(control.Report); ok {
		e.Data = report.WithoutUsualRows()
	}
	return e, true, nil
}

func (r *reportReader) Close() {
	r.hub.mu.Lock()
	delete(r.hub.readers, r)
	r.hub.mu.Unlock()
	r.hub.awaitAbsence()
}
