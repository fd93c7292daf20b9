package agent

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestGroupLearnsOfCorrectionWhileItIsJoined: NTP often sets the clock just after the start,
// when agents join their groups.
func TestGroupLearnsOfCorrectionWhileItIsJoined(t *testing.T) {
	t.Parallel()
	ledger, listeners := newGroup(t, 1, office.Majority, "StatusTable")
	store, err := state.Open(t.TempDir())
	must.Succeed(t, err)
	defer store.Close()
	var shift atomic.Int64
	joining, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	ticks := clock.New(time.Now())
	a, err := New(t.Context(), &config.Config{Self: "a", Domain: "default", Groups: []config.Group{ledger}}, Options{
		Clock: ticks, Wall: func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }, Store: store, Life: 1, Listener: listeners["a"],
		Metrics: func(string) group.Metrics { return metrics.New().ForGroup("") }, Log: new(testwait.Log).Logger(),
		OnReport: func(r control.Report) {
			if r.Group == "audit" {
				once.Do(func() {
					close(joining)
					<-goOn
				})
			}
		},
	})
	must.Succeed(t, err)
	defer a.Close(t.Context())
	audit := ledger
	audit.Name = "audit"
	audit.Safety.Lease = 5 * time.Second // Its election waits for the correction, however slow this machine is.
	p, err := a.PrepareGroup(audit, nil)
	must.Succeed(t, err)
	joined := make(chan error, 1)
	go func() { joined <- a.ApplyGroup(t.Context(), p) }()
	testwait.Receive(t, "the beginning of the group", joining)
	corrected := election.Term(control.TermAt(time.Now().Add(time.Hour)))
	shift.Store(int64(time.Hour))
	testwait.Until(t, "the clock is corrected", func() bool { return ticks.CurrentTerm() >= corrected })
	close(goOn)
	must.Succeed(t, testwait.Receive(t, "the end of joining", joined))
	awaitCoordinatorIn(t, "audit", map[string]*Agent{"a": a}, "a")
	g, _ := a.Find("audit")
	if l := g.Leader(); l.Term < uint64(corrected) {
		t.Errorf("got term %d, want at least %d by the corrected clock", l.Term, corrected)
	}
}
