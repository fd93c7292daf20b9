package agents

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// ReportRate is how many reports of an agent the operator handles in a second, in the long run.
const ReportRate float64 = reportRate

// ReportBurst returns how many reports of an agent in some groups the operator handles at once.
func ReportBurst(groups int) int { return reportBurst + reportBurstPerGroup*groups }

// ByteRate is how many bytes the operator reads from an agent in a second, in the
// long run, and ByteBurst how many at once.
const (
	ByteRate  float64 = byteRate
	ByteBurst         = byteBurst
)

// ShortVersion is the version of an agent in the status and in metrics.
func ShortVersion(version string) string { return shortVersion(version) }

// SetMaxTablesOfNamespace sets how many bytes the tables of a namespace's agents may take.
func (s *Streams) SetMaxTablesOfNamespace(bytes int) { s.maxTablesOfNamespace = bytes }

// SetRejectedRetry sets the wait before a document that was rejected is sent again.
func (s *Streams) SetRejectedRetry(wait time.Duration) { s.rejectedRetry = wait }

// Connection returns the state of the connection to a pod's agent; false if Streams doesn't follow it.
func (s *Streams) Connection(pod types.NamespacedName) (facts.Agent, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if stream := s.streams[pod]; stream != nil {
		return stream.state, true
	}
	return facts.Agent{}, false
}

// ConnectedSince returns when a pod's agent was last connected.
func (s *Streams) ConnectedSince(pod types.NamespacedName) time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.streams[pod].since
}

// Tables returns how many bytes the tables of a namespace's agents take.
func (s *Streams) Tables(namespace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[namespace]
}

// The limits of a namespace: see tenant.go.
const (
	MaxUnreadOfTenant = maxUnreadOfTenant
	TenantByteBurst   = tenantByteBurst
)

// Unread returns how many bytes of unfinished lines the agents of a namespace have sent.
func (s *Streams) Unread(namespace string) int {
	s.tenants.mu.Lock()
	defer s.tenants.mu.Unlock()
	if of := s.tenants.byName[namespace]; of != nil {
		return of.unread
	}
	return 0
}

// TokensOfTenant returns how many bytes the agents of a namespace may send at once.
func (s *Streams) TokensOfTenant(namespace string) float64 {
	s.tenants.mu.Lock()
	defer s.tenants.mu.Unlock()
	if of := s.tenants.byName[namespace]; of != nil {
		return of.bytes.Tokens()
	}
	return tenantByteBurst
}

// DecodeGroup decodes the data of a report.
func DecodeGroup(data []byte) error {
	d := decoder{}
	return d.decodeEvent(context.Background(), control.EventGroup, data)
}
