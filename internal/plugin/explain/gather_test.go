package explain

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// TestGatherJournals: journals and failures are in the order of the pods, and a journal in another
// name or about another group is missing.
func TestGatherJournals(t *testing.T) {
	answers := map[string]*journal.Journal{
		"ledger-0": {Agent: "ledger-0", Group: "ledger"},
		"ledger-1": {Agent: "ledger-0", Group: "ledger"},
		"ledger-2": {Agent: "ledger-2", Group: "other"},
		"ledger-4": {Agent: "ledger-4", Group: "ledger"},
	}
	pods := []string{"ledger-4", "ledger-3", "ledger-2", "ledger-1", "ledger-0"}
	for i := range 50 {
		pod := fmt.Sprintf("further-%d", i)
		pods = append(pods, pod)
		answers[pod] = &journal.Journal{Agent: pod, Group: "ledger"}
	}
	journals, missing := gatherJournals(t.Context(), "ledger", pods, func(_ context.Context, pod string) (*journal.Journal, error) {
		if answers[pod] == nil {
			return nil, errors.New("no answer")
		}
		return answers[pod], nil
	})
	wantMissing := []transcript.Missing{
		{Agent: "ledger-3", Reason: "no answer"},
		{Agent: "ledger-2", Reason: `its journal is that of "ledger-2" in group "other"`},
		{Agent: "ledger-1", Reason: `its journal is that of "ledger-0" in group "ledger"`},
	}
	expect.DeepEqualf(t, missing, wantMissing, "missing")
	var got []string
	for i := range journals {
		got = append(got, journals[i].Agent)
	}
	expect.DeepEqualf(t, got, append([]string{"ledger-4", "ledger-0"}, pods[5:]...), "journals")
}
