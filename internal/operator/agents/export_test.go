package agents

import (
	"context"
	"time"

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
