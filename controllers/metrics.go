package controllers

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/operator/decide"
)

// metricSet has the operator's metrics. The series of a group are removed with it.
type metricSet struct {
	connected  func() map[string]int
	failover   *prometheus.HistogramVec
	lag        prometheus.Histogram
	reconciles prometheus.Counter

	mu     sync.Mutex
	groups map[types.NamespacedName]*groupMetrics
}

// groupMetrics are the values of one group.
type groupMetrics struct {
	decide.Gauges

	elections uint64
	// deferred and droppedEvents count what the limits left out.
	deferred, droppedEvents uint64
	// failures and others are the gaps before new tenures, after a failure and after another end.
	failures, others gaps
}

// gaps are times without a coordinator.
type gaps struct {
	count uint64
	total time.Duration
}

var (
	groupLabels = []string{"namespace", "group"}
	gapLabels   = []string{"namespace", "group", "end"}

	groupsMetric  = prometheus.NewDesc("conclave_operator_groups", "Number of groups.", nil, nil)
	refusedMetric = prometheus.NewDesc("conclave_operator_groups_refused",
		"Number of groups that aren't served because their namespaces have too many.", nil, nil)
	streamsMetric = prometheus.NewDesc("conclave_operator_streams_connected",
		"Number of connected agents, in any group or none.", nil, nil)
	coordinatorMetric = prometheus.NewDesc("conclave_operator_group_coordinator",
		"1 if the group has a coordinator, else 0.", groupLabels, nil)
	agreedMetric = prometheus.NewDesc("conclave_operator_group_agreed",
		"0 if the group's agents disagree about the coordinator, the member list or the settings, else 1.", groupLabels, nil)
	dividedMetric = prometheus.NewDesc("conclave_operator_group_coordinators_differ",
		"1 if the group's agents name different coordinators, else 0.", groupLabels, nil)
	behindMetric = prometheus.NewDesc("conclave_operator_group_status_behind",
		"1 if the group's agents use a newer member list than the status, else 0.", groupLabels, nil)
	electionsMetric = prometheus.NewDesc("conclave_operator_elections_total",
		"Observed changes of the group's coordinator or term.", groupLabels, nil)
	deferredMetric = prometheus.NewDesc("conclave_operator_status_deferred_total",
		"Reconciles that left a change of the group's status for later, because of the limit of writes.", groupLabels, nil)
	droppedMetric = prometheus.NewDesc("conclave_operator_events_dropped_total",
		"Events of the group that were not written, because of the limit of events.", groupLabels, nil)
	versionsMetric = prometheus.NewDesc("conclave_operator_agents",
		"Number of connected agents, in any group or none, by version.", []string{"version"}, nil)
	connectedMetric = prometheus.NewDesc("conclave_operator_agents_connected",
		"Members of the group whose agents are connected.", groupLabels, nil)
	gapsMetric = prometheus.NewDesc("conclave_operator_group_gaps_total",
		"Times without a coordinator that have ended, after a failure or another end of a tenure.", gapLabels, nil)
	gapTimeMetric = prometheus.NewDesc("conclave_operator_group_gap_seconds_total",
		"Their length, after a failure or another end of a tenure.", gapLabels, nil)
	expectedMetric = prometheus.NewDesc("conclave_operator_agents_expected", "Members of the group.", groupLabels, nil)
)

func newMetricSet(connected func() map[string]int) *metricSet {
	m := &metricSet{
		connected: connected,
		failover: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "conclave_operator_failover_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
			Help: "Time without a coordinator between two tenures, as agents have measured it, by what ended the tenure: " +
				"a failure, a planned change, or unknown.",
		}, []string{"end"}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "conclave_operator_status_lag_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
			Help: "Time between a change, by the agent's clock, and the write of the group's status.",
		}),
		reconciles: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "conclave_operator_reconciles_total", Help: "Completed reconciles of groups.",
		}),
		groups: map[types.NamespacedName]*groupMetrics{},
	}
	for _, end := range []string{decide.EndFailure, decide.EndPlanned, decide.EndUnknown} {
		m.failover.WithLabelValues(end) // A rate needs the series before the first failover.
	}
	return m
}

// endOther is a planned or unknown end of a tenure.
const endOther = "other"

func (m *metricSet) register(registry prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.failover, m.lag, m.reconciles, m} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Describe implements prometheus.Collector.
func (m *metricSet) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		groupsMetric, refusedMetric, streamsMetric, versionsMetric,
		coordinatorMetric, agreedMetric, dividedMetric, behindMetric, electionsMetric, deferredMetric, droppedMetric,
		connectedMetric, expectedMetric, gapsMetric, gapTimeMetric,
	} {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metricSet) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	counter := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
	}
	m.collectVersions(gauge)
	m.mu.Lock()
	defer m.mu.Unlock()
	refused := 0
	for key, g := range m.groups {
		refused += number(g.Refused)
		labels := []string{key.Namespace, key.Name}
		gauge(coordinatorMetric, number(!g.Vacant), labels...)
		gauge(agreedMetric, number(!g.Disagreeing), labels...)
		gauge(dividedMetric, number(g.Divided), labels...)
		gauge(behindMetric, number(g.Behind), labels...)
		gauge(connectedMetric, g.Connected, labels...)
		gauge(expectedMetric, g.Expected, labels...)
		counter(electionsMetric, float64(g.elections), labels...)
		counter(deferredMetric, float64(g.deferred), labels...)
		counter(droppedMetric, float64(g.droppedEvents), labels...)
		for end, gaps := range map[string]gaps{decide.EndFailure: g.failures, endOther: g.others} {
			counter(gapsMetric, float64(gaps.count), key.Namespace, key.Name, end)
			counter(gapTimeMetric, gaps.total.Seconds(), key.Namespace, key.Name, end)
		}
	}
	gauge(groupsMetric, len(m.groups))
	gauge(refusedMetric, refused)
}

// maxVersions bounds the number of time series, whatever versions agents report.
const maxVersions = 20

func (m *metricSet) collectVersions(gauge func(desc *prometheus.Desc, value int, labels ...string)) {
	total, others := 0, 0
	counts := m.connected()
	for i, version := range slices.Sorted(maps.Keys(counts)) {
		total += counts[version]
		if i < maxVersions {
			gauge(versionsMetric, counts[version], version)
		} else {
			others += counts[version]
		}
	}
	gauge(streamsMetric, total)
	if others > 0 {
		gauge(versionsMetric, others, "others")
	}
}

// number returns 1 for true and 0 for false.
func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (m *metricSet) forget(group types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, group)
}

func (m *metricSet) forgetAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.groups)
}

// update changes the metrics of a group. Only the leader has such metrics.
func (m *metricSet) update(group types.NamespacedName, change func(*groupMetrics)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.groups[group] == nil {
		m.groups[group] = &groupMetrics{}
	}
	change(m.groups[group])
}
