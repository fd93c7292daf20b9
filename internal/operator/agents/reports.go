package agents

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// stored is the latest report of an agent on a group.
type stored struct {
	report *control.Report
	// adoptedAt is since when, by the operator's clock, the agent has reported this version of the member list.
	adoptedAt time.Time
	// size is how many bytes the table takes.
	size int
}

// Reports returns the latest reports on a group, by their pods' names.
func (s *Streams) Reports(group types.NamespacedName) map[string]*control.Report {
	s.mu.RLock()
	defer s.mu.RUnlock()
	reports := make(map[string]*control.Report, len(s.reporting[group]))
	for pod, stream := range s.reporting[group] {
		reports[pod] = stream.reports[group.Name].report
	}
	return reports
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

// Groups returns the groups that a pod's agent reports.
func (s *Streams) Groups(pod types.NamespacedName) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	stream, ok := s.streams[pod]
	if !ok {
		return nil
	}
	return slices.Collect(maps.Keys(stream.reports))
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
	hub.mu.Lock()
	defer hub.mu.Unlock()
	if s.closed {
		return false
	}
	before := s.reports[name]
	s.addTableSize(-before.size)
	next := stored{report, before.adoptedAt, report.Size()}
	if before.report == nil || before.report.UID != report.UID || before.report.Version != report.Version {
		next.adoptedAt = now
	}
	if next.size > maxTables-s.tableSize || next.size > hub.maxTablesOfNamespace-hub.tables[s.agent.Pod.Namespace] {
		withoutTable := *report
		withoutTable.Processes, withoutTable.OnlyUnusual = nil, false // It says nothing about other members.
		next.report, next.size = &withoutTable, 0
	}
	s.addTableSize(next.size)
	if s.reports == nil {
		s.reports = map[string]stored{}
	}
	s.reports[name] = next
	hub.setReporting(s, name)
	s.invalidateEligibility(name)
	return true
}

// setReporting makes Reports find the report of a stream. The caller holds the lock.
func (s *Streams) setReporting(of *stream, name string) {
	group := types.NamespacedName{Namespace: of.agent.Pod.Namespace, Name: name}
	if s.reporting[group] == nil {
		s.reporting[group] = map[string]*stream{}
	}
	s.reporting[group][of.agent.Pod.Name] = of
}

// maxTables is how many bytes the tables of one agent may take, and maxTablesOfNamespace those of
// all agents of a namespace, whose users can write agents of their own. Reports of honest agents
// leave out the rows of members that are up.
const (
	maxTables            = 1 << 20
	maxTablesOfNamespace = 16 << 20
)

// addTableSize changes how many bytes the tables of the agent take. The caller holds the lock.
func (s *stream) addTableSize(bytes int) {
	ofNamespace, namespace := s.streams.tables, s.agent.Pod.Namespace
	s.tableSize += bytes
	if ofNamespace[namespace] += bytes; ofNamespace[namespace] == 0 {
		delete(ofNamespace, namespace)
	}
}

// removeReport removes the report on a group that the agent has left, and signals the change.
func (s *stream) removeReport(name string) {
	hub := s.streams
	hub.mu.Lock()
	if !s.closed {
		hub.removeReport(s, name)
	}
	hub.mu.Unlock()
	hub.options.Changed(s.agent.Pod, name)
}

// removeReports removes all reports of an agent. It depends on the number of its groups only:
// most pods of a cluster have none. The caller holds the lock.
func (s *Streams) removeReports(of *stream) {
	for name := range of.reports {
		s.removeReport(of, name)
	}
}

// removeReport removes one report, if there is one. The caller holds the lock.
func (s *Streams) removeReport(of *stream, name string) {
	of.addTableSize(-of.reports[name].size)
	delete(of.reports, name)
	group := types.NamespacedName{Namespace: of.agent.Pod.Namespace, Name: name}
	delete(s.reporting[group], of.agent.Pod.Name)
	if len(s.reporting[group]) == 0 {
		delete(s.reporting, group)
	}
}
