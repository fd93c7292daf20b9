package agents

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// AgentReport is the latest report of an agent on a group, with the times at which the
// operator received its changes. Times are of the operator's clock.
type AgentReport struct {
	UID    types.UID
	Report *control.Report
	// AdoptedAt is since when the agent has reported this version of the member list.
	AdoptedAt time.Time
	// NamedAt is when the agent first named this coordinator in this term.
	NamedAt time.Time
	// LostAt is when the agent last stopped naming a coordinator that it had named.
	LostAt time.Time
}

// Reports returns the latest reports on a group, by their pods' names.
func (s *Streams) Reports(group types.NamespacedName) map[string]AgentReport {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.reports[group])
}

// outdated is the response of an agent that refuses a document because of its revision.
type outdated struct {
	revision int64
	at       time.Time
}

// setOutdated stores that the agent accepts documents of a group from a revision on, and signals
// that. It does so once in rejectedRetry.
func (s *stream) setOutdated(group string, response *statusError) {
	hub, now := s.streams, time.Now()
	hub.mu.Lock()
	last, known := s.outdated[group]
	changed := !s.closed && response.revision > last.revision && (!known || now.Sub(last.at) >= hub.rejectedRetry)
	if changed {
		if s.outdated == nil {
			s.outdated = map[string]outdated{}
		}
		s.outdated[group] = outdated{response.revision, now}
	}
	hub.mu.Unlock()
	if changed {
		hub.options.Changed(s.agent.Pod, group)
	}
}

// Outdated returns the lowest revision that a pod's agent accepts in a group; 0 if the agent
// hasn't refused a document because of that.
func (s *Streams) Outdated(pod types.NamespacedName, group string) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if stream := s.streams[pod]; stream != nil {
		return stream.outdated[group].revision
	}
	return 0
}

// Groups returns the groups that a pod's agent reports.
func (s *Streams) Groups(pod types.NamespacedName) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	stream, ok := s.streams[pod]
	if !ok {
		return nil
	}
	return slices.Collect(maps.Keys(stream.tables))
}

// update stores a report, or removes that of a group that the agent has left if report is nil, and signals the change.
func (s *stream) update(group string, report *control.Report) {
	switch {
	case report == nil:
		s.removeReport(group)
	case s.putReport(group, report):
		s.streams.options.Changed(s.agent.Pod, group)
	}
}

// putReport stores a report. It returns false if the stream has been closed.
func (s *stream) putReport(name string, report *control.Report) bool {
	now := time.Now()
	hub := s.streams
	group := types.NamespacedName{Namespace: s.agent.Pod.Namespace, Name: name}
	hub.mu.Lock()
	defer hub.mu.Unlock()
	if s.closed {
		return false
	}
	reports := hub.reports[group]
	if reports == nil {
		reports = map[string]AgentReport{}
		hub.reports[group] = reports
	}
	if s.tables == nil {
		s.tables = map[string]int{}
	}
	hub.setTable(s, name, 0)
	if size := report.Size(); size <= maxTables-s.totalTables() &&
		size <= hub.maxTablesOfNamespace-hub.tables[group.Namespace] {
		hub.setTable(s, name, size)
	} else {
		withoutTable := *report
		withoutTable.Processes, withoutTable.OnlyUnusual = nil, false // It says nothing about other members.
		report = &withoutTable
	}
	reports[s.agent.Pod.Name] = reports[s.agent.Pod.Name].next(s.agent.UID, report, now)
	s.invalidateEligibility(group.Name)
	return true
}

// maxTables is how many bytes the tables of one agent may take, and maxTablesOfNamespace those of
// all agents of a namespace, whose users can write agents of their own. Reports of honest agents
// leave out the rows of members that are up.
const (
	maxTables            = 1 << 20
	maxTablesOfNamespace = 16 << 20
)

// setTable sets how many bytes the table of a group takes. The caller holds the lock.
func (s *Streams) setTable(of *stream, group string, size int) {
	namespace := of.agent.Pod.Namespace
	if s.tables[namespace] += size - of.tables[group]; s.tables[namespace] == 0 {
		delete(s.tables, namespace)
	}
	of.tables[group] = size
}

// totalTables returns how many bytes the stored tables take.
func (s *stream) totalTables() (bytes int) {
	for _, size := range s.tables {
		bytes += size
	}
	return bytes
}

// removeReport removes the report on a group that the agent has left, and signals the change.
func (s *stream) removeReport(name string) {
	group := types.NamespacedName{Namespace: s.agent.Pod.Namespace, Name: name}
	hub := s.streams
	hub.mu.Lock()
	if !s.closed {
		if _, ok := s.tables[name]; ok {
			hub.setTable(s, name, 0)
			delete(s.tables, name)
		}
		if reports := hub.reports[group]; reports != nil {
			hub.removeReport(group, reports, s.agent.Pod.Name)
		}
	}
	hub.mu.Unlock()
	hub.options.Changed(s.agent.Pod, name)
}

// removeReports removes all reports of an agent. It depends on the number of its groups only:
// most pods of a cluster have none. The caller holds the lock.
func (s *Streams) removeReports(of *stream) {
	for name := range of.tables {
		s.setTable(of, name, 0)
		group := types.NamespacedName{Namespace: of.agent.Pod.Namespace, Name: name}
		if reports := s.reports[group]; reports != nil {
			s.removeReport(group, reports, of.agent.Pod.Name)
		}
	}
}

// removeReport removes one report. The caller holds the lock.
func (s *Streams) removeReport(group types.NamespacedName, reports map[string]AgentReport, pod string) {
	delete(reports, pod)
	if len(reports) == 0 {
		delete(s.reports, group)
	}
}

// next returns the successor of r with another report.
func (r AgentReport) next(uid types.UID, report *control.Report, now time.Time) AgentReport {
	before := r.Report
	r.UID, r.Report = uid, report
	if before == nil || before.UID != report.UID {
		return AgentReport{UID: uid, Report: report, AdoptedAt: now, NamedAt: now}
	}
	if before.Version != report.Version {
		r.AdoptedAt = now
	}
	if before.Coordinator != report.Coordinator || before.Term != report.Term {
		r.NamedAt = now
		if before.Coordinator != "" {
			r.LostAt = now
		}
	}
	return r
}
