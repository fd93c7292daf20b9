package describe

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestRunbooksAreThoseOfAlerts: the page of a group links to the same runbook as the alert.
func TestRunbooksAreThoseOfAlerts(t *testing.T) {
	rules := must.ReadFile(t, "../../config/prometheus/rules.yaml")
	for reason := range runbooks {
		if url := runbook(reason); !strings.Contains(string(rules), "runbook_url: "+url+"\n") {
			t.Errorf("%s: no alert has the runbook %s", reason, url)
		}
	}
	expect.Equalf(t, runbook("Eclipse"), "", "runbook for a reason that is too new")
}
