package agent

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestProbe: a coordinator whose application fails a few times goes on. When nobody listens, it hands over at once.
func TestProbe(t *testing.T) {
	t.Parallel()
	var left atomic.Int32
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if left.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer application.Close()
	g, listeners := newGroup(t, 1, office.Majority, "StatusTable")
	steady(&g)
	var err error
	g.Probe, err = config.NewProbe(application.URL)
	must.Succeed(t, err)
	g.Probe.Period, g.Probe.Failures = 20*time.Millisecond, 1_000_000
	a := startWith(t, "a", testOptions(t, 1, t.TempDir(), listeners["a"]), g)
	awaitCoordinator(t, map[string]*Agent{"a": a}, "a")
	joined, _ := a.Find(g.Name)
	term := joined.Leader().Term
	left.Store(5)
	testwait.Until(t, "the application is healthy again", func() bool { return left.Load() < -2 })
	l := joined.Leader()
	expect.Equalf(t, l.Leading && l.Term == term, true, "%+v leads in term %d", l, term)
	application.Close()
	testwait.Until(t, "a has handed over", func() bool { return !joined.Leader().Leading })
}
