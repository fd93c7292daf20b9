package agents

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// ReportRate is how many reports of an agent the operator handles in a second, in
// the long run.
const ReportRate float64 = reportRate

// ReportBurst returns how many reports of an agent in some groups the operator
// handles at once.
func ReportBurst(groups int) int { return reportBurst + reportBurstPerGroup*groups }

// ByteRate is how many bytes the operator reads from an agent in a second, in the
// long run, and ByteBurst how many at once.
const (
	ByteRate  float64 = byteRate
	ByteBurst         = byteBurst
)

// ShortVersion is the version of an agent in the status and in metrics.
func ShortVersion(version string) string { return shortVersion(version) }

// PutReport follows a pod, and stores a report on a group as if its agent had sent it.
func (s *Streams) PutReport(pod types.NamespacedName, group string) {
	s.Follow(Agent{Pod: pod, UID: "u"}, 0)
	s.streams[pod].putReport(group, &control.Report{Group: group, Pod: pod.Name})
}

// SetMaxTablesOfNamespace sets how many bytes the tables of a namespace's agents may take.
func (s *Streams) SetMaxTablesOfNamespace(bytes int) { s.maxTablesOfNamespace = bytes }

// Tables returns how many bytes the tables of a namespace's agents take.
func (s *Streams) Tables(namespace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[namespace]
}
