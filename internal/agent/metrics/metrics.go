// Package metrics counts what an agent does, for Prometheus. It writes the text
// format by itself: the usual library would take a fifth of the memory that an
// agent may have, and a few counters are all that there is.
package metrics

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/election"
)

// Groups is where the present state of the groups is asked for.
type Groups interface {
	Names() []string
	Find(name string) (*group.Group, bool)
}

// Registry holds the counters of all groups. Those of a group that was left
// stay: a counter never goes back.
type Registry struct {
	// CertificateNotAfter, if it isn't nil, is when the agent's certificate expires.
	CertificateNotAfter func() time.Time

	mu     sync.Mutex
	groups map[string]*Group
}

// New is an empty registry.
func New() *Registry { return &Registry{groups: map[string]*Group{}} }

// Group are the counters of one group; it is a group.Meter.
type Group struct {
	sent, received    [election.Probe + 1]atomic.Uint64
	elections         [group.CauseCount]atomic.Uint64
	tenures           atomic.Uint64
	refused, outdated atomic.Uint64
	suspicions        atomic.Uint64
	falseSuspicions   atomic.Uint64
	detection         histogram
	election          histogram
	tenure            histogram

	cause       group.Cause // of the vacancy; by one goroutine
	tenureSince time.Time
}

var _ group.Metrics = (*Group)(nil)

// Of are the counters of a group.
func (r *Registry) ForGroup(name string) *Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[name]
	if g == nil {
		g = &Group{}
		r.groups[name] = g
	}
	return g
}

// Sent is for group.Meter, as are those below.
func (g *Group) Sent(kind election.Kind) { count(&g.sent, kind) }

// Received counts a message.
func (g *Group) Received(kind election.Kind) { count(&g.received, kind) }

func count(by *[election.Probe + 1]atomic.Uint64, kind election.Kind) {
	if int(kind) < len(by) {
		by[kind].Add(1)
	}
}

// Event counts an event.
func (g *Group) Event(event election.Event) {
	switch event.Kind {
	case election.TenureStarted:
		g.tenures.Add(1)
		g.tenureSince = time.Now()
	case election.TenureLost, election.OfficeResigned:
		g.tenure.observe(time.Since(g.tenureSince))
	case election.Outdated:
		g.outdated.Add(1)
	case election.Refused:
		g.refused.Add(1)
	default:
	}
}

// Refused counts a letter that was not read.
func (g *Group) Refused() { g.refused.Add(1) }

// Suspected counts a suspicion.
func (g *Group) Suspected() { g.suspicions.Add(1) }

// Cleared counts a suspicion that was wrong.
func (g *Group) Cleared() { g.falseSuspicions.Add(1) }

// CoordinatorLost notes why there is no coordinator.
func (g *Group) CoordinatorLost(cause group.Cause, silence time.Duration) {
	g.cause = cause
	if cause == group.CauseCrash || cause == group.CauseSilence {
		g.detection.observe(silence)
	}
}

// CoordinatorFound counts an election.
func (g *Group) CoordinatorFound(after time.Duration) {
	if g.cause < group.CauseCount {
		g.elections[g.cause].Add(1)
	}
	g.election.observe(after)
}

// bounds are the upper ends of a histogram's buckets, in seconds: from a crash
// that is noticed at once to a lease that has to run out.
var bounds = [...]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 3600}

type histogram struct {
	buckets [len(bounds) + 1]atomic.Uint64
	nanos   atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	i, _ := slices.BinarySearch(bounds[:], d.Seconds())
	h.buckets[i].Add(1)
	h.nanos.Add(int64(d))
}

// Handler serves all of it.
func (r *Registry) Handler(groups Groups) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		buffer := bufio.NewWriter(w)
		r.write(buffer, groups)
		_ = buffer.Flush() // Whoever asked has gone away.
	})
}

func (r *Registry) write(w io.Writer, groups Groups) {
	r.mu.Lock()
	all := maps.Clone(r.groups)
	r.mu.Unlock()
	p := &page{w: w, groups: all, names: slices.Sorted(maps.Keys(all))}
	p.counter("conclave_messages_sent_total", "Messages sent, by kind.", func(g *Group, add addFunc) { byKind(&g.sent, add) })
	p.counter("conclave_messages_received_total", "Messages received, by kind.",
		func(g *Group, add addFunc) { byKind(&g.received, add) })
	p.counter("conclave_elections_total", "Coordinators recognised, by what had left the office vacant.",
		func(g *Group, add addFunc) {
			for cause := range group.CauseCount {
				add(g.elections[cause].Load(), "cause", cause.String())
			}
		})
	simple := func(name, what string, of func(*Group) *atomic.Uint64) {
		p.counter(name, what, func(g *Group, add addFunc) { add(of(g).Load()) })
	}
	simple("conclave_tenures_total", "How often this process became coordinator.",
		func(g *Group) *atomic.Uint64 { return &g.tenures })
	simple("conclave_suspicions_total", "Peers that were silent for too long.",
		func(g *Group) *atomic.Uint64 { return &g.suspicions })
	simple("conclave_false_suspicions_total", "Suspected peers of which the same process was heard again.",
		func(g *Group) *atomic.Uint64 { return &g.falseSuspicions })
	simple("conclave_messages_refused_total", "Messages that made no sense here.",
		func(g *Group) *atomic.Uint64 { return &g.refused })
	simple("conclave_messages_outdated_total", "Messages of an older term.",
		func(g *Group) *atomic.Uint64 { return &g.outdated })
	p.histogram("conclave_detection_seconds", "From a coordinator's last sign of life until it was missed.",
		func(g *Group) *histogram { return &g.detection })
	p.histogram("conclave_election_seconds", "From when there was no coordinator until there was one.",
		func(g *Group) *histogram { return &g.election })
	p.histogram("conclave_tenure_seconds", "How long this process was coordinator, each time.",
		func(g *Group) *histogram { return &g.tenure })
	p.present(groups)
	if r.CertificateNotAfter != nil {
		p.header("conclave_certificate_expiry_timestamp_seconds", "When this agent's certificate expires.", "gauge")
		fmt.Fprintf(w, "conclave_certificate_expiry_timestamp_seconds %d\n", r.CertificateNotAfter().Unix())
	}
	p.process()
}

func byKind(by *[election.Probe + 1]atomic.Uint64, add addFunc) {
	for kind := range by {
		if n := by[kind].Load(); n > 0 {
			add(n, "kind", election.Kind(kind).String())
		}
	}
}

// page is one answer.
type page struct {
	w      io.Writer
	groups map[string]*Group
	names  []string
}

// addFunc adds a sample, with labels besides the group's name.
type addFunc func(value uint64, labels ...string)

func (p *page) header(name, what, kind string) {
	fmt.Fprintf(p.w, "# HELP %s %s\n# TYPE %s %s\n", name, what, name, kind)
}

func (p *page) sample(name, group string, value float64, labels ...string) {
	all := append([]string{"group", group}, labels...)
	var text strings.Builder
	for i := 0; i < len(all); i += 2 {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, "%s=%q", all[i], all[i+1])
	}
	fmt.Fprintf(p.w, "%s{%s} %s\n", name, text.String(), number(value))
}

func number(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }

func (p *page) counter(name, what string, samples func(*Group, addFunc)) {
	p.header(name, what, "counter")
	for _, of := range p.names {
		samples(p.groups[of], func(value uint64, labels ...string) { p.sample(name, of, float64(value), labels...) })
	}
}

func (p *page) histogram(name, what string, which func(*Group) *histogram) {
	p.header(name, what, "histogram")
	for _, of := range p.names {
		h := which(p.groups[of])
		sum := time.Duration(h.nanos.Load()).Seconds()
		total := uint64(0)
		for i := range h.buckets {
			total += h.buckets[i].Load()
			end := math.Inf(1)
			if i < len(bounds) {
				end = bounds[i]
			}
			p.sample(name+"_bucket", of, float64(total), "le", number(end))
		}
		p.sample(name+"_sum", of, sum)
		p.sample(name+"_count", of, float64(total))
	}
}

// present writes what is the case now.
func (p *page) present(groups Groups) {
	leaders := map[string]group.Leader{}
	names := groups.Names()
	for _, name := range names {
		if g, ok := groups.Find(name); ok {
			leaders[name] = g.Leader()
		}
	}
	gauge := func(name, what string, value func(group.Leader) float64) {
		p.header(name, what, "gauge")
		for _, of := range names {
			if leader, ok := leaders[of]; ok {
				p.sample(name, of, value(leader))
			}
		}
	}
	gauge("conclave_leading", "1 while this process is the coordinator.",
		func(l group.Leader) float64 { return truth(l.Leading) })
	gauge("conclave_coordinator_known", "1 while a coordinator is known.",
		func(l group.Leader) float64 { return truth(l.Coordinator != "") })
	gauge("conclave_term", "The term of the latest coordinator.", func(l group.Leader) float64 { return float64(l.Term) })
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
