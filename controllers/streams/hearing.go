package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const (
	// rowsMax and problemsMax keep a short line from becoming much in memory: there
	// are a thousand members at most, and a few words about each.
	rowsMax     = 1000
	problemsMax = 1000

	// An election is a few reports of each of its agents. Whoever has more news than
	// for some elections of each of its groups at once, newsBurst and newsPerGroup,
	// is believed newsRate a second: each may cost some writes, and the time of
	// those who look at groups.
	newsRate     = 5
	newsBurst    = 40
	newsPerGroup = 10

	// bulkRate is what is read of an agent, in bytes a second, once it has said more
	// than bulkBurst. Each line counts as lineCost more than its length.
	bulkRate  = 1 << 20
	bulkBurst = 4 << 20
	lineCost  = 256
)

// hearing is what one connection has said so far. What it says at first counts
// when it is complete; from then on, each report at once, as long as the agent's
// pace allows. What is held back until then is the newest of each group: neither
// what was said in between nor that it was said gets any further, so that a look
// at the group for another reason doesn't find something new each time.
type hearing struct {
	stream *stream
	// groups are those that the agent may speak about.
	groups  map[string]bool
	current bool
	kind    string

	mu sync.Mutex
	// held has nil for a group that the agent has left.
	held map[string]*control.Report
	// waiting: what is held will be passed on.
	waiting bool
}

func (s *stream) hearing(groups map[string]bool) *hearing {
	if burst := newsBurst + newsPerGroup*len(groups); s.pace == nil || s.pace.Burst() != burst {
		s.pace = rate.NewLimiter(newsRate, burst)
	}
	if s.bulk == nil {
		s.bulk = rate.NewLimiter(bulkRate, bulkBurst)
	}
	return &hearing{stream: s, groups: groups, held: map[string]*control.Report{}}
}

// line hears a line of a stream of server-sent events. All that agents send is
// in one line; a comment is only a sign of life.
func (h *hearing) line(ctx context.Context, line []byte) error {
	field, value := cut(line)
	switch field {
	case "event":
		h.kind = string(value)
	case "data":
		kind := h.kind
		h.kind = ""
		if err := h.event(ctx, kind, value); err != nil {
			return fmt.Errorf("it says something else than expected: %w", err)
		}
	}
	return nil
}

func cut(line []byte) (field string, value []byte) {
	for i, c := range line {
		if c == ':' {
			value = line[i+1:]
			if len(value) > 0 && value[0] == ' ' {
				value = value[1:]
			}
			return string(line[:i]), value
		}
	}
	return string(line), nil
}

func (h *hearing) event(ctx context.Context, kind string, data []byte) error {
	switch kind {
	case control.EventGroup:
		report := &control.Report{}
		if err := json.Unmarshal(data, report); err != nil {
			return err
		}
		if rows := len(report.Processes); rows > rowsMax {
			return fmt.Errorf("a report of %d rows", rows)
		}
		if len(report.Problems) > problemsMax {
			report.Problems = slices.Clone(report.Problems[:problemsMax])
		}
		// Whose word it is, the certificate says, not the report.
		report.Pod = h.stream.agent.Pod.Name
		h.hold(report.Group, report)
	case control.EventLeft:
		var left control.Left
		if err := json.Unmarshal(data, &left); err != nil {
			return err
		}
		h.hold(left.Group, nil)
	case control.EventCurrent:
		var agent control.Agent
		if err := json.Unmarshal(data, &agent); err != nil {
			return err
		}
		if h.current {
			return errors.New("that all has been said, for the second time")
		}
		h.begin(ctx, h.open(agent.Groups))
	}
	return nil
}

// open are the groups that an agent can take part in, of those that it may speak
// about, each once: however many it names, no more are kept.
func (h *hearing) open(named []string) []string {
	var groups []string
	for _, group := range named {
		if h.groups[group] && !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	return groups
}

// begin passes on what was said at first, before the agent counts as connected.
func (h *hearing) begin(ctx context.Context, groups []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current = true
	said := map[string]bool{}
	for group, report := range h.held {
		if report != nil {
			said[group] = true
			h.stream.keep(group, report)
		}
	}
	clear(h.held)
	h.stream.current(ctx, said, groups)
}

// hold takes in what was said about a group: nil, that it was left.
func (h *hearing) hold(group string, report *control.Report) {
	if !h.groups[group] {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[group] = report
	if h.current && !h.waiting {
		h.pass()
	}
}

// pass passes on what is held, as far as the pace allows, and the rest later. It
// is called with the lock held.
func (h *hearing) pass() {
	for group, report := range h.held {
		if !h.stream.pace.Allow() {
			h.waiting = true
			time.AfterFunc(time.Second/newsRate, h.later)
			return
		}
		delete(h.held, group)
		h.stream.heard(group, report)
	}
}

func (h *hearing) later() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = false
	h.pass()
}

// end passes on all that is held: who has ended says nothing newer. There can't be
// many connections that end, for each attempt waits longer.
func (h *hearing) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.current {
		return
	}
	for group, report := range h.held {
		h.stream.heard(group, report)
	}
	clear(h.held)
}

// heard keeps a report, or forgets the group, and says so.
func (s *stream) heard(group string, report *control.Report) {
	switch {
	case report == nil:
		s.left(group)
	case s.keep(group, report):
		s.streams.options.Changed(s.agent.Pod, group)
	}
}
