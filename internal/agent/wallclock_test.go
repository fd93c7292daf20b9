package agent

import (
	"sync"
	"testing"
	"time"

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
	joining, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	options := testOptions(t, 1, t.TempDir(), listeners["a"])
	options.OnReport = func(r control.Report) {
		if r.Group == "audit" {
			once.Do(func() {
				close(joining)
				<-goOn
			})
		}
	}
	a := startWith(t, "a", options, ledger)
	a.stopClock() // Its readings are seconds apart, and the lease could end before the second one.
	audit := ledger
	audit.Name = "audit"
	audit.Safety.Lease = 5 * time.Second // Its election waits for that, so it is after the correction.
	p, err := a.PrepareGroup(audit, nil)
	must.Succeed(t, err)
	joined := make(chan error, 1)
	go func() { joined <- a.ApplyGroup(t.Context(), p) }()
	testwait.Receive(t, "the beginning of the group", joining)
	corrected := election.Term(control.TermAt(time.Now().Add(time.Hour)))
	for range 2 { // One reading doesn't count.
		a.correctClock(time.Now().Add(time.Hour))
	}
	if now := options.Clock.CurrentTerm(); now < corrected {
		t.Fatalf("got term %d by the corrected clock, want at least %d", now, corrected)
	}
	close(goOn)
	must.Succeed(t, testwait.Receive(t, "the end of joining", joined))
	awaitCoordinatorIn(t, "audit", map[string]*Agent{"a": a}, "a")
	g, _ := a.Find("audit")
	if l := g.Leader(); l.Term < uint64(corrected) {
		t.Errorf("got term %d, want at least %d by the corrected clock", l.Term, corrected)
	}
}
