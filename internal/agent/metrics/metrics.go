// Package metrics provides the metrics of an agent in the text format of Prometheus. It doesn't use the client library,
// which would take a fifth of the memory limit of an agent.
package metrics

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/proxy"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Groups provides the current state of the groups, for gauges.
type Groups interface {
	Names() []string
	Find(name string) (*group.Group, bool)
}

// Registry holds the counters of all groups. It retains those of a group that was left,
// because counters must not decrease.
type Registry struct {
	// Version is the version of the program.
	Version string
	// CertificateNotAfter, if it isn't nil, returns the expiry of the agent's certificate,
	// or the zero time if it has none yet.
	CertificateNotAfter func() time.Time
	// DroppedLogLines, if it isn't nil, returns the number of log lines that were dropped.
	DroppedLogLines func() uint64

	mu     sync.Mutex
	groups map[string]*counters
}

// New returns an empty registry.
func New() *Registry { return &Registry{groups: map[string]*counters{}} }

type counters struct {
	group.Metrics

	// connections is nil if the agent hasn't carried any of the group.
	connections atomic.Pointer[proxy.Stats]
}

// Group returns the counters of a group.
func (r *Registry) Group(name string) *group.Metrics { return &r.counters(name).Metrics }

// Connections returns the counters of the connections that the agent carries for a group.
func (r *Registry) Connections(name string) *proxy.Stats {
	g := r.counters(name)
	g.connections.CompareAndSwap(nil, &proxy.Stats{})
	return g.connections.Load()
}

func (r *Registry) counters(name string) *counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[name]
	if g == nil {
		g = &counters{}
		r.groups[name] = g
	}
	return g
}

// Handler serves all metrics.
func (r *Registry) Handler(groups Groups) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		buffer := bufio.NewWriter(w)
		r.write(buffer, groups)
		_ = buffer.Flush() // An error means that the client has disconnected.
	})
}

func (r *Registry) write(w io.Writer, groups Groups) {
	r.mu.Lock()
	all := maps.Clone(r.groups)
	r.mu.Unlock()
	p := &page{w: w, groups: all, names: slices.Sorted(maps.Keys(all))}
	p.counter("conclave_messages_sent_total", "Messages sent to peers, by kind.",
		func(g *counters, add addFunc) { byKind(&g.Sent, add) })
	p.counter("conclave_messages_received_total", "Messages received from peers, by kind.",
		func(g *counters, add addFunc) { byKind(&g.Received, add) })
	p.counter("conclave_elections_total", "Recognized coordinators, by the reason for which there was none before.",
		func(g *counters, add addFunc) {
			for cause := range control.EndUnknown {
				add(g.Elections[cause].Load(), "cause", cause.String())
			}
		})
	simple := func(name, help string, of func(*counters) *atomic.Uint64) {
		p.counter(name, help, func(g *counters, add addFunc) { add(of(g).Load()) })
	}
	simple("conclave_tenures_total", "Tenures of this process as coordinator.",
		func(g *counters) *atomic.Uint64 { return &g.Tenures })
	simple("conclave_suspicions_total", "Peers suspected because of missing messages.",
		func(g *counters) *atomic.Uint64 { return &g.Suspicions })
	simple("conclave_false_suspicions_total", "Suspicions of peers that turned out to be alive.",
		func(g *counters) *atomic.Uint64 { return &g.FalseSuspicions })
	simple("conclave_messages_refused_total", "Messages ignored because they were invalid or the configurations differed.",
		func(g *counters) *atomic.Uint64 { return &g.Refused })
	simple("conclave_messages_dropped_total", "Messages dropped because too many others waited.",
		func(g *counters) *atomic.Uint64 { return &g.Dropped })
	simple("conclave_messages_outdated_total", "Messages ignored because their term was outdated.",
		func(g *counters) *atomic.Uint64 { return &g.Outdated })
	p.histogram("conclave_detection_seconds",
		"Time from the last message of a failed coordinator to the detection of its failure.",
		func(g *counters) *group.Histogram { return &g.Detection })
	p.histogram("conclave_election_seconds", "Time without coordinator until a new one was recognized.",
		func(g *counters) *group.Histogram { return &g.Election })
	p.histogram("conclave_tenure_seconds", "Duration of the tenures of this process as coordinator.",
		func(g *counters) *group.Histogram { return &g.Tenure })
	p.histogram("conclave_answer_seconds",
		"Time from a heartbeat of this process as coordinator to the answer of a member.",
		func(g *counters) *group.Histogram { return &g.Answer })
	p.connections()
	p.gauges(groups)
	r.writeProgram(p)
	p.process()
}

// connections writes what the agent carries for clients of groups.
func (p *page) connections() {
	metric := func(name, help, kind string, write func(*proxy.Stats, func(value uint64, labels ...string))) {
		p.header(name, help, kind)
		for _, g := range p.names {
			if of := p.groups[g].connections.Load(); of != nil {
				write(of, func(value uint64, labels ...string) { p.sample(name, g, float64(value), labels...) })
			}
		}
	}
	type add = func(value uint64, labels ...string)
	metric("conclave_proxy_connections", "Connections of clients; those that wait for a coordinator.", "gauge",
		func(s *proxy.Stats, add add) {
			now := s.Report()
			add(uint64(now.Open), "state", "open")       //nolint:gosec // not negative
			add(uint64(now.Waiting), "state", "waiting") //nolint:gosec // not negative
		})
	metric("conclave_proxy_closed_total", "Connections of clients that have ended, by reason.", "counter",
		func(s *proxy.Stats, add add) {
			for why := range proxy.ReasonCount {
				add(s.Ended[why].Load(), "reason", why.String())
			}
		})
	metric("conclave_proxy_failed_dials_total", "Attempts to reach the coordinator's application that failed.", "counter",
		func(s *proxy.Stats, add add) { add(s.FailedDials.Load()) })
	metric("conclave_proxy_bytes_total", "Bytes from and to clients.", "counter", func(s *proxy.Stats, add add) {
		add(s.FromClients.Load(), "direction", "from_clients")
		add(s.ToClients.Load(), "direction", "to_clients")
	})
}

// writeProgram writes what doesn't belong to a group.
func (r *Registry) writeProgram(p *page) {
	p.header("conclave_build_info", "1, with the version of the agent.", "gauge")
	fmt.Fprintf(p.w, "conclave_build_info{version=%q} 1\n", r.Version)
	if r.CertificateNotAfter != nil {
		const name = "conclave_certificate_expiry_timestamp_seconds"
		p.header(name, "Expiry of the agent's certificate, as a Unix timestamp.", "gauge")
		if at := r.CertificateNotAfter(); !at.IsZero() {
			fmt.Fprintf(p.w, "%s %d\n", name, at.Unix())
		}
	}
	if r.DroppedLogLines != nil {
		const help = "Log lines dropped because stderr was blocked or broken."
		p.single("conclave_log_lines_dropped_total", help, "counter", r.DroppedLogLines())
	}
}

// single writes a metric that has one value.
func (p *page) single(name, help, kind string, value any) {
	p.header(name, help, kind)
	fmt.Fprintf(p.w, "%s %v\n", name, value)
}

func byKind(by *group.ByKind, add addFunc) {
	for kind := range by {
		if n := by[kind].Load(); n > 0 {
			add(n, "kind", election.Kind(kind).String())
		}
	}
}

type page struct {
	w      io.Writer
	groups map[string]*counters
	names  []string
}

// addFunc adds a sample, with labels in addition to the name of the group.
type addFunc func(value uint64, labels ...string)

func (p *page) header(name, help, kind string) {
	fmt.Fprintf(p.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
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

func (p *page) counter(name, help string, samples func(*counters, addFunc)) {
	p.header(name, help, "counter")
	for _, groupName := range p.names {
		samples(p.groups[groupName],
			func(value uint64, labels ...string) { p.sample(name, groupName, float64(value), labels...) })
	}
}

func (p *page) histogram(name, help string, which func(*counters) *group.Histogram) {
	p.header(name, help, "histogram")
	for _, groupName := range p.names {
		h := which(p.groups[groupName])
		sum := time.Duration(h.Nanos.Load()).Seconds()
		total := uint64(0)
		for i := range h.Buckets {
			total += h.Buckets[i].Load()
			end := math.Inf(1)
			if i < len(group.Bounds) {
				end = group.Bounds[i]
			}
			p.sample(name+"_bucket", groupName, float64(total), "le", number(end))
		}
		p.sample(name+"_sum", groupName, sum)
		p.sample(name+"_count", groupName, float64(total))
	}
}

func (p *page) gauges(groups Groups) {
	type state struct {
		group.Leader

		suspicionTimeout time.Duration
		heldBack         int
		ineligible       group.Ineligibility
	}
	var states []state
	for _, name := range groups.Names() {
		if g, ok := groups.Find(name); ok {
			states = append(states, state{g.Leader(), g.SuspicionTimeout(), g.HeldBack(), g.Ineligible()})
		}
	}
	gauge := func(name, help string, value func(*state) float64) {
		p.header(name, help, "gauge")
		for i := range states {
			p.sample(name, states[i].Group, value(&states[i]))
		}
	}
	gauge("conclave_leading", "Whether this process is the coordinator: 1 or 0.",
		func(s *state) float64 { return boolValue(s.Leading) })
	gauge("conclave_coordinator_known", "Whether this process knows a coordinator: 1 or 0.",
		func(s *state) float64 { return boolValue(s.Coordinator != "") })
	gauge("conclave_term", "Term of the latest coordinator.", func(s *state) float64 { return float64(s.Term) })
	gauge("conclave_suspicion_timeout_seconds",
		"Silence after which the coordinator is suspected. It and leases grow while renewals are late.",
		func(s *state) float64 { return s.suspicionTimeout.Seconds() })
	gauge("conclave_members_held_back", "Members that don't take over for a while, because their last tenures were short.",
		func(s *state) float64 { return float64(s.heldBack) })
	p.header("conclave_ineligible", "Whether this process may not be elected for this reason: 1 or 0.", "gauge")
	for i := range states {
		for why := group.Eligible + 1; why < group.IneligibilityCount; why++ {
			p.sample("conclave_ineligible", states[i].Group, boolValue(why == states[i].ineligible), "reason", why.Label())
		}
	}
}

func boolValue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// process writes the resource usage of this process, under the names that the client libraries of Prometheus use.
func (p *page) process() {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err == nil {
		seconds := float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
		p.single("process_cpu_seconds_total", "Total user and system CPU time in seconds.", "counter", number(seconds))
	}
	statm, _ := os.ReadFile("/proc/self/statm") // Without it, there is nothing to scan.
	var size, resident int                      // in pages
	if _, err := fmt.Sscan(string(statm), &size, &resident); err == nil {
		p.single("process_resident_memory_bytes", "Resident memory size in bytes.", "gauge", resident*os.Getpagesize())
	}
	p.single("go_goroutines", "Number of goroutines.", "gauge", runtime.NumGoroutine())
}
