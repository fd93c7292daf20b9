package agents

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const (
	// An election takes a few reports of each agent. An agent may send the reports of several elections of each of its
	// groups at once: reportBurst, and reportBurstPerGroup for each group. Beyond that, the operator handles reportRate
	// reports a second: each may cost several writes, and a worker's time.
	reportRate          = 5
	reportBurst         = 40
	reportBurstPerGroup = 10

	// byteRate is how many bytes a second the operator reads from an agent that has
	// sent more than byteBurst. Each line counts as lineCost more than its length.
	byteRate  = 256 << 10
	byteBurst = 4 << 20
	lineCost  = 256
)

// throttle limits the rate at which the reports of one connection reach the report store. It passes the initial state
// on when that is complete, and later each report at once, as long as the agent's limit allows.
//
// Beyond the limit, it retains the newest report of each group. It passes on neither
// the reports in between nor a signal that there were any: a reconcile that runs for
// another reason finds the same report until the throttle releases the next one.
type throttle struct {
	stream *stream
	// current: the initial state is complete. Only the reading goroutine sets it.
	current bool

	mu sync.Mutex
	// queued are the reports to pass on; nil for a group that the agent has left.
	queued map[string]*control.Report
	// scheduled: a timer will flush the queue.
	scheduled bool
}

func newThrottle(s *stream, groups int) *throttle {
	if burst := reportBurst + reportBurstPerGroup*groups; s.reportLimit == nil || s.reportLimit.Burst() != burst {
		s.reportLimit = rate.NewLimiter(reportRate, burst)
	}
	if s.byteLimit == nil {
		s.byteLimit = rate.NewLimiter(byteRate, byteBurst)
	}
	return &throttle{stream: s, queued: map[string]*control.Report{}}
}

// setCurrent passes the initial state on, and then marks the agent as connected.
func (t *throttle) setCurrent(ctx context.Context, agent facts.Agent, groups []string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current {
		// Each such event would trigger a reconcile of all groups of the agent.
		return errors.New("received twice on one connection")
	}
	t.current = true
	reported := map[string]bool{}
	for group, report := range t.queued {
		if report != nil {
			reported[group] = true
			t.stream.putReport(group, report)
		}
	}
	clear(t.queued)
	t.stream.setConnected(ctx, reported, agent, groups)
	return nil
}

// add queues a report; nil means that the agent has left the group.
func (t *throttle) add(group string, report *control.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued[group] = report
	if t.current && !t.scheduled {
		t.flush()
	}
}

// flush passes on as many queued reports as the limit allows, and schedules the rest. The caller holds the lock.
func (t *throttle) flush() {
	for group, report := range t.queued {
		if !t.stream.reportLimit.Allow() {
			t.scheduled = true
			time.AfterFunc(time.Second/reportRate, t.flushLater)
			return
		}
		delete(t.queued, group)
		t.stream.update(group, report)
	}
}

func (t *throttle) flushLater() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.scheduled = false
	t.flush()
}

// close passes on all queued reports: nothing newer can follow. The backoff between
// connections bounds how often that happens.
func (t *throttle) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.current {
		return
	}
	for group, report := range t.queued {
		t.stream.update(group, report)
	}
	clear(t.queued)
}
