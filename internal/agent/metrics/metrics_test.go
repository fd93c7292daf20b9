package metrics

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/proxy"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

type noGroups struct{}

func (noGroups) Names() []string                  { return nil }
func (noGroups) Find(string) (*group.Group, bool) { return nil, false }

// read returns the response of a registry without current groups.
func read(t *testing.T, r *Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler(noGroups{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return w.Body.String()
}

func TestCountersAreShown(t *testing.T) {
	r := New()
	r.Version = "v1.2.3"
	r.CertificateNotAfter = func() time.Time { return time.Unix(1800000000, 0) }
	r.DroppedLogLines = func() uint64 { return 3 }
	g := r.Group("ledger")
	g.Elections[control.EndCrash].Add(1)
	g.Sent[election.Beat].Add(2)
	g.Received[election.Grant].Add(3)
	for i, counter := range []*atomic.Uint64{
		&g.Refused, &g.Outdated, &g.Dropped, &g.Suspicions, &g.FalseSuspicions, &g.Tenures,
	} {
		counter.Add(uint64(11 + i))
	}
	for i, h := range []*group.Histogram{&g.Detection, &g.Election, &g.Tenure, &g.Answer} {
		h.Buckets[i].Add(1)
		h.Buckets[len(group.Bounds)].Add(1)
		h.Nanos.Add(int64(i) * 1_000_000_000)
	}
	connections := r.Connections("ledger")
	connections.Connections.Add(3)
	connections.Waiting.Add(2)
	r.Connections("ledger").Ended[proxy.TooMany].Add(1)
	connections.ToClients.Add(9)
	connections.FailedDials.Add(4)
	text := read(t, r)
	for _, line := range []string{
		`conclave_proxy_connections{group="ledger",state="open"} 1`,
		`conclave_proxy_connections{group="ledger",state="waiting"} 2`,
		`conclave_proxy_closed_total{group="ledger",reason="too_many"} 1`,
		`conclave_proxy_failed_dials_total{group="ledger"} 4`,
		`conclave_proxy_bytes_total{group="ledger",direction="to_clients"} 9`,
		`conclave_elections_total{group="ledger",cause="crash"} 1`,
		`conclave_elections_total{group="ledger",cause="silence"} 0`,
		`conclave_messages_sent_total{group="ledger",kind="BEAT"} 2`,
		`conclave_messages_received_total{group="ledger",kind="GRANT"} 3`,
		`conclave_messages_refused_total{group="ledger"} 11`,
		`conclave_messages_outdated_total{group="ledger"} 12`,
		`conclave_messages_dropped_total{group="ledger"} 13`,
		`conclave_suspicions_total{group="ledger"} 14`,
		`conclave_false_suspicions_total{group="ledger"} 15`,
		`conclave_tenures_total{group="ledger"} 16`,
		`conclave_detection_seconds_bucket{group="ledger",le="0.0005"} 1`,
		`conclave_election_seconds_bucket{group="ledger",le="0.0005"} 0`,
		`conclave_election_seconds_bucket{group="ledger",le="0.001"} 1`,
		`conclave_election_seconds_bucket{group="ledger",le="+Inf"} 2`,
		`conclave_election_seconds_count{group="ledger"} 2`,
		`conclave_election_seconds_sum{group="ledger"} 1`,
		`conclave_tenure_seconds_sum{group="ledger"} 2`,
		`conclave_answer_seconds_sum{group="ledger"} 3`,
		`conclave_log_lines_dropped_total 3`,
		`conclave_certificate_expiry_timestamp_seconds 1800000000`,
		`conclave_build_info{version="v1.2.3"} 1`,
	} {
		expect.Containsf(t, text, line+"\n", "metrics")
	}
}

// A pod whose agent waits for a group has no certificate that could expire.
func TestNoExpiryWithoutCertificate(t *testing.T) {
	r := New()
	r.CertificateNotAfter = func() time.Time { return time.Time{} }
	if text := read(t, r); strings.Contains(text, "\nconclave_certificate_expiry_timestamp_seconds") {
		t.Errorf("got an expiry, want none:\n%s", text)
	}
}

// TestFormat: each metric family has its help and its type, once, before its samples. Each sample has a number.
func TestFormat(t *testing.T) {
	r := New()
	r.Group("b").Sent[election.Beat].Add(1)
	r.Group("a")
	family, seen := "", map[string]bool{}
	sample := regexp.MustCompile(`^([a-z_]+?)(_bucket|_sum|_count)?(\{([a-z]+="[^"]*",?)+\})? [-+0-9.e]+$`)
	for line := range strings.Lines(read(t, r)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "# HELP "):
			family = strings.Fields(line)[2]
			if seen[family] {
				t.Errorf("family %s: got two, want one", family)
			}
			seen[family] = true
		case strings.HasPrefix(line, "# TYPE "):
			if f := strings.Fields(line); f[2] != family || f[3] != "counter" && f[3] != "gauge" && f[3] != "histogram" {
				t.Errorf("family %s: got line %s", family, line)
			}
		default:
			m := sample.FindStringSubmatch(line)
			if m == nil || m[1] != family && m[1]+m[2] != family {
				t.Errorf("family %s: got line %s", family, line)
			}
		}
	}
	expect.AtLeastf(t, len(seen), 15, "families")
}
