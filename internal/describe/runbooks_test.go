package describe

import (
	"strings"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestRunbooksAreThoseOfAlerts: the page of a group links to the same runbook as the alert.
func TestRunbooksAreThoseOfAlerts(t *testing.T) {
	rules := must.ReadFile(t, "../../config/prometheus/rules.yaml")
	for reason := range runbooks {
		expect.Containsf(t, string(rules), "runbook_url: "+runbook(reason)+"\n", "alert of %s", reason)
	}
	expect.Equalf(t, runbook("Eclipse"), "", "runbook for a reason that is too new")
}

// TestAdviceOnMissingRenewals: a pause of the agent looks like one of the application.
func TestAdviceOnMissingRenewals(t *testing.T) {
	g := &v1.ElectionGroup{}
	g.Name, g.Namespace = "ledger", "bank"
	for reason, alsoAgent := range map[v1.EndReason]bool{
		v1.EndNotRenewed: true, v1.EndSessionClosed: false, v1.EndProbeFailed: false,
	} {
		got := flappingAdvice(g, reason,
			[]v1.Tenure{{Pod: "ledger-0", EndReason: v1.EndCrash}, {Pod: "ledger-1", EndReason: reason}})
		if strings.Contains(got, "application or its agent") != alsoAgent ||
			!strings.HasSuffix(got, ": kubectl logs ledger-1 -n bank") {
			t.Errorf("%s: got advice %q", reason, got)
		}
	}
}
