package controllers_test

import (
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// In Available mode, one agent can elect itself again and again. The operator doesn't write each of
// these elections, but the last one.
func TestElectionsWithoutEndAreLimited(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := e.startOperator(func(o *operator) { o.debounce = -1 })
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	e.startLedger(func(group *v1.ElectionGroup) { group.Spec.Safety.Mode = v1.Available }, pods...)
	e.elect("ledger", "ledger-2", 7)
	e.awaitCoordinator("ledger", "ledger-2", 7)
	e.awaitQuiet(o)

	written := func() float64 { return value(t, o.metrics, "conclave_operator_elections_total") }
	const elections = 45 // The operator accepts that many reports of an agent at once.
	began := time.Now()
	before := written()
	for term := uint64(8); term < 8+elections; term++ {
		reconciles := value(t, o.metrics, "conclave_operator_reconciles_total")
		e.agents["ledger-0"].ChangeReport("ledger", func(r *control.Report) { r.Coordinator, r.Term = "ledger-0", term })
		e.eventually("the operator has handled the report", func() bool {
			return value(t, o.metrics, "conclave_operator_reconciles_total") > reconciles
		})
	}
	e.awaitCoordinator("ledger", "ledger-0", 7+elections)
	e.awaitRole("ledger-0", "ledger", v1.RoleCoordinator)
	elapsed := int(time.Since(began).Seconds())
	expect.AtMostf(t, written()-before, float64(10+elapsed+1), "elections written in %d s", elapsed)
	if got, most := len(e.events()), 25+elapsed/60+1; got > most {
		t.Errorf("got %d events in %d s, want at most %d", got, elapsed, most)
	}
	if deferred := value(t, o.metrics, "conclave_operator_status_deferred_total"); deferred == 0 {
		t.Error("got no deferred status in the metric, want some")
	}
}
