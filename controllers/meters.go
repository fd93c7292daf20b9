package controllers

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// meters are the operator's metrics. Those of a group go with it.
type meters struct {
	connected func() int
	failover  prometheus.Histogram
	lag       prometheus.Histogram
	looks     prometheus.Counter

	mu     sync.Mutex
	groups map[types.NamespacedName]*meter
}

// meter is what is measured of one group.
type meter struct {
	vacant bool
	// disagreeing is any contradiction, also of settings that are on their way;
	// divided is one about who leads.
	disagreeing, divided bool
	elections            uint64
	connected, expected  int
}

const prefix = "conclave_operator_"

var (
	groupLabels = []string{"namespace", "group"}

	groupsMetric      = prometheus.NewDesc(prefix+"groups", "Groups that there are.", nil, nil)
	vacantMetric      = prometheus.NewDesc(prefix+"groups_without_coordinator", "Groups in which nobody leads.", nil, nil)
	disagreeingMetric = prometheus.NewDesc(prefix+"groups_disagreeing", "Groups whose agents contradict each other: about the coordinator, the list or the settings.", nil, nil)
	streamsMetric     = prometheus.NewDesc(prefix+"streams_connected", "Agents that are connected, of all groups and of none.", nil, nil)
	coordinatorMetric = prometheus.NewDesc(prefix+"group_coordinator", "1 if somebody leads the group, else 0.", groupLabels, nil)
	agreedMetric      = prometheus.NewDesc(prefix+"group_agreed", "0 if the group's agents contradict each other about the coordinator, the list or the settings, else 1.", groupLabels, nil)
	dividedMetric     = prometheus.NewDesc(prefix+"group_coordinators_differ", "1 if the group's agents name different coordinators, else 0.", groupLabels, nil)
	electionsMetric   = prometheus.NewDesc(prefix+"elections_total", "Changes of the group's coordinator or term that the operator has seen.", groupLabels, nil)
	connectedMetric   = prometheus.NewDesc(prefix+"agents_connected", "Members of the group whose agents are connected.", groupLabels, nil)
	expectedMetric    = prometheus.NewDesc(prefix+"agents_expected", "Members of the group.", groupLabels, nil)
)

func newMeters(connected func() int) *meters {
	return &meters{
		connected: connected,
		failover: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "failover_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
			Help: "From when the operator first learned that a coordinator is lost until it learned of the next.",
		}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "status_lag_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
			Help: "From when an agent knew of a change, by its own clock, until it was in the group's status.",
		}),
		looks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "looks_total", Help: "How often a group was looked at to the end.",
		}),
		groups: map[types.NamespacedName]*meter{},
	}
}

func (m *meters) register(registry prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.failover, m.lag, m.looks, m} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Describe is of a prometheus.Collector.
func (m *meters) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		groupsMetric, vacantMetric, disagreeingMetric, streamsMetric,
		coordinatorMetric, agreedMetric, dividedMetric, electionsMetric, connectedMetric, expectedMetric,
	} {
		descriptions <- d
	}
}

// Collect is of a prometheus.Collector.
func (m *meters) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	gauge(streamsMetric, m.connected())
	m.mu.Lock()
	defer m.mu.Unlock()
	vacant, disagreeing := 0, 0
	for key, g := range m.groups {
		labels := []string{key.Namespace, key.Name}
		vacant += number(g.vacant)
		disagreeing += number(g.disagreeing)
		gauge(coordinatorMetric, number(!g.vacant), labels...)
		gauge(agreedMetric, number(!g.disagreeing), labels...)
		gauge(dividedMetric, number(g.divided), labels...)
		gauge(connectedMetric, g.connected, labels...)
		gauge(expectedMetric, g.expected, labels...)
		metrics <- prometheus.MustNewConstMetric(electionsMetric, prometheus.CounterValue, float64(g.elections), labels...)
	}
	gauge(groupsMetric, len(m.groups))
	gauge(vacantMetric, vacant)
	gauge(disagreeingMetric, disagreeing)
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (m *meters) forget(group types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, group)
}

// at notes how a group is.
func (m *meters) at(group types.NamespacedName, now meter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before := m.groups[group]; before != nil {
		now.elections += before.elections
	}
	m.groups[group] = &now
}
