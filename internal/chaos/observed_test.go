package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// What is measured begins with the last answer of a coordinator, and not with a fault, which only others know.
func TestElectionsOfAGroupAreObserved(t *testing.T) {
	a, b := Agent{"a", "1"}, Agent{"b", "2"}
	r := &Record{Fault: at(0), Term: 5, HasService: true}
	r.Addresses = map[string][]string{"a": {"10.0.0.1"}, "b": {"10.0.0.2"}}
	r.Changes = []Change{
		{From: b, At: at(-10), Coordinator: "a", Term: 5}, {From: b, At: at(100), Term: 5},
		{From: b, At: at(150), Coordinator: "b", Leading: true, Term: 6}, {From: a, At: at(160), Coordinator: "b", Term: 6},
		{From: a, At: at(300), Coordinator: "a", Leading: true, Term: 7},
	}
	for _, answer := range []struct {
		from Agent
		term uint64
		at   int
	}{{a, 5, 20}, {a, 5, 90}, {b, 6, 155}, {b, 6, 290}, {b, 6, 310}, {a, 7, 320}} {
		r.Answers = append(r.Answers, Answer{answer.from, at(answer.at - 1), at(answer.at), answer.term, answer.term})
	}
	r.Statuses = []Status{{at(170), "b", 6}, {at(400), "a", 7}}
	r.Routes = []Route{{at(180), []string{"10.0.0.2"}}}
	changes, violations := r.ObservedChanges(false)
	var got []string
	for _, f := range changes {
		service := time.Duration(-1)
		if f.Service != nil {
			service = time.Duration(*f.Service)
		}
		got = append(got, fmt.Sprintf("%s %.0f %.0f %d", f.Coordinator, *f.Elected, *f.Status, service))
	}
	expect.Equalf(t, strings.Join(got, "; "), "b 60 80 90; a 10 110 -1", "the elections of b and a")
	// The former coordinator answered after the next one was elected, and before that answered.
	expect.Lenf(t, violations, 0, "violation")
	r.Answers = append(r.Answers, Answer{b, at(330), at(331), 6, 6})
	if _, violations = r.ObservedChanges(false); len(violations) != 1 || violations[0].Invariant != OneCoordinator {
		t.Errorf("got %v, want a coordinator with a lower token", violations)
	}
	if _, violations = r.ObservedChanges(true); len(violations) > 0 {
		t.Errorf("got %v, want no violation on two sides of a partition", violations)
	}
	result := &Result{Namespace: "bank", Group: "ledger", Algorithm: "Bully", Safety: "Strict", Members: 3}
	result.ObservedMillis, result.Faults, result.Summary = 600_000, changes, Summarize(changes)
	var table strings.Builder
	must.Succeed(t, result.WriteTable(&table))
	const want = `bank/ledger: Bully; Strict; 3 members

FAULT   COUNT  ELECTED             STATUS            SERVICE
change  2      10.0 / 60.0 / 60.0  80.0 / 110 / 110  90.0 / 90.0 / 90.0
Milliseconds from the last answer of a coordinator: median / p99 / maximum.

2 changes of the leader in 10m0s: no invariant was violated
`
	if table.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &table, want)
	}
}
