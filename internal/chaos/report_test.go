package chaos

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func newResult() *Result {
	r := &Result{Namespace: "bank", Group: "ledger", Algorithm: "StatusTable", Safety: "Majority", Members: 5, Seed: 7}
	for i := range 100 {
		r.Faults = append(r.Faults, Fault{Number: i + 1, Kind: ForcePod, Elected: new(float64(100 - i)), Settled: new(8000.0)})
	}
	r.Faults = append(r.Faults, Fault{Kind: Pod, Elected: new(1.5)}, Fault{Kind: Evict, Refused: "budget"}, Fault{Kind: Manager})
	r.Summary = Summarize(r.Faults)
	return r
}

func TestSummaryHasMedianP99AndMaximumOfEachKind(t *testing.T) {
	var b strings.Builder
	must.Succeed(t, newResult().WriteTable(&b))
	want := `bank/ledger: StatusTable; Majority; 5 members; seed 7

FAULT      COUNT           ELECTED             KNOWN BY ALL  STATUS  SERVICE  SETTLED
pod        1               1.50 / 1.50 / 1.50  -             -       -        -
force-pod  100             50.0 / 99.0 / 100   -             -       -        8000 / 8000 / 8000
evict      0 (+1 refused)  -                   -             -       -        -
manager    1               -                   -             -       -        -
Milliseconds from the fault: median / p99 / maximum.

102 faults: no invariant was violated
`
	expect.Equal(t, b.String(), want)
}

// Without faults of its own, the command shows changes of the leader, and no columns for what it can't know.
func TestObservedChangesAreReported(t *testing.T) {
	r := &Result{Namespace: "web", Leader: "lease/web", Candidates: "app=web", Evidence: "A Lease.", Members: 3, ObservedMillis: 600_000}
	r.Faults = []Fault{{Number: 1, Kind: changeOfLeader, Elected: new(16500.0), TwoLeaders: new(20.0)}, {Number: 2, Kind: changeOfLeader, Elected: new(2000.0)}}
	r.Summary = Summarize(r.Faults)
	r.Violations = []Violation{{Problem: Problem{OneLeader, "two of them"}}}
	var b strings.Builder
	must.Succeed(t, r.WriteTable(&b))
	want := `web, lease/web: 3 candidates with app=web

FAULT   COUNT  ELECTED               TWO LEADERS
change  2      2000 / 16500 / 16500  1 of 2, 20.0 ms or longer
ELECTED: milliseconds from the last sign of a leader to the next one: median / p99 / maximum.
A Lease.

2 changes of the leader in 10m0s: 1 violation of invariants
- one leader: two of them
`
	expect.Equal(t, b.String(), want)
}

func TestReportsNameViolations(t *testing.T) {
	r := newResult()
	r.Violations = []Violation{{Fault: 3, Kind: ForcePod, Problem: Problem{OneCoordinator, "two of them"}}}
	r.Interrupted, r.NotPossible = true, map[string]string{Freeze: "no permission"}
	var table, markdown strings.Builder
	must.Succeed(t, r.WriteTable(&table))
	must.Succeed(t, r.WriteMarkdown(&markdown))
	for _, want := range []string{"102 faults: 1 violation of invariants before the run was interrupted", "- fault 3 (force-pod): one coordinator: two of them\n"} {
		if !strings.Contains(table.String(), want) || !strings.Contains(markdown.String(), want) {
			t.Errorf("got\n%s\n%s\nwant both to contain %q", &table, &markdown, want)
		}
	}
	for _, want := range []string{"| force-pod | 100 | 50.0 / 99.0 / 100 | - |", "- `freeze` was not possible: no permission\n"} {
		if !strings.Contains(markdown.String(), want) {
			t.Errorf("got\n%s\nwant it to contain %q", &markdown, want)
		}
	}
}
