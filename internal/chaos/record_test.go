package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(millis int) time.Time { return start.Add(time.Duration(millis) * time.Millisecond) }

func TestCheckAnswers(t *testing.T) {
	a, b := Agent{"a", "1"}, Agent{"b", "2"}
	answer := func(from Agent, token uint64, sent, received int) Answer {
		return Answer{From: from, Sent: at(sent), Received: at(received), Token: token}
	}
	for name, c := range map[string]struct {
		leading []Answer
		want    string
	}{
		"no coordinator":           {nil, ""},
		"one after the other":      {[]Answer{answer(a, 5, 0, 1), answer(a, 5, 2, 3), answer(b, 7, 4, 5)}, ""},
		"slow response":            {[]Answer{answer(a, 5, 0, 9), answer(b, 7, 4, 5)}, ""},
		"tenures overlap":          {[]Answer{answer(a, 5, 0, 1), answer(b, 7, 4, 5), answer(a, 5, 6, 7)}, "lower token"},
		"token decreases":          {[]Answer{answer(a, 7, 0, 1), answer(b, 5, 4, 5)}, "lower token"},
		"one token, two processes": {[]Answer{answer(a, 7, 0, 1), answer(b, 7, 0, 1)}, "same token"},
	} {
		p := CheckAnswers(c.leading)
		if (p == nil) != (c.want == "") || p != nil && !strings.Contains(p.Detail, c.want) {
			t.Errorf("%s: got %v, want %q", name, p, c.want)
		}
	}
}

func TestTokensAreComparedWithThoseOfEarlierRecords(t *testing.T) {
	before := []Answer{
		{Token: 5, Received: at(1)}, {Token: 9, Sent: at(2), Received: at(3)}, {Token: 7, Sent: at(2), Received: at(3)},
	}
	later := Answer{Token: 8, Sent: at(10), Received: at(11)}
	if p := CheckAnswers(append(HighestToken(before), later)); p == nil {
		t.Error("got no problem, want one: token 8 after token 9")
	}
	if p := CheckAnswers(append(HighestToken(nil), later)); p != nil {
		t.Errorf("got %v, want no problem", p)
	}
}

func TestCheckTerms(t *testing.T) {
	a, b := Agent{"a", "1"}, Agent{"b", "2"}
	for name, c := range map[string]struct {
		changes  []Change
		statuses []Status
		bad      bool
	}{
		"terms grow": {changes: []Change{{From: a, Coordinator: "a", Term: 5}, {From: a, Coordinator: "b", Term: 6}}},
		"no coordinator in between": {
			changes: []Change{{From: a, Coordinator: "a", Term: 5}, {From: a}, {From: a, Coordinator: "b", Term: 6}},
		},
		"another agent is behind": {
			changes: []Change{{From: a, Coordinator: "a", Term: 5}, {From: b, Coordinator: "b", Term: 4}},
		},
		"an agent returns to a lower one": {
			changes: []Change{{From: a, Coordinator: "a", Term: 5}, {From: a}, {From: a, Coordinator: "b", Term: 4}}, bad: true,
		},
		"the status grows":     {statuses: []Status{{Term: 4}, {Term: 4}, {Term: 5}}},
		"the status decreases": {statuses: []Status{{Term: 5}, {Term: 4}}, bad: true},
	} {
		if p := CheckTerms(c.changes, c.statuses); (p != nil) != c.bad {
			t.Errorf("%s: got %v, want a problem: %t", name, p, c.bad)
		}
	}
}

func TestAvailableModeMayHaveACoordinatorOnEachSide(t *testing.T) {
	r := Record{
		Answers: []Answer{
			{From: Agent{Pod: "a"}, Token: 7, Received: at(1)}, {From: Agent{Pod: "b"}, Token: 5, Sent: at(2), Received: at(3)},
		},
		Changes: []Change{{Coordinator: "a", Term: 7}, {Coordinator: "b", Term: 5}},
	}
	expect.Lenf(t, r.Problems(false), 2, "problems in Majority")
	expect.Lenf(t, r.Problems(true), 0, "problems in Available")
}

// failover is the record of a fault at 100 ms: p-2 fails, and p-1 is elected in term 8.
func failover() *Record {
	p0, p1, p2 := Agent{"p-0", "u0"}, Agent{"p-1", "u1"}, Agent{"p-2", "u2"}
	return &Record{
		Before: p2, Term: 7, Fault: at(100), Victims: map[string]bool{"u2": true},
		Agents: []Agent{p0, p1, p2}, HasService: true,
		Addresses: map[string][]string{"p-0": {"10.0.0.0"}, "p-1": {"10.0.0.1"}, "p-2": {"10.0.0.2"}},
		Changes: []Change{
			{From: p0, At: at(0), Coordinator: "p-2", Term: 7},
			{From: p1, At: at(103)},
			{From: p1, At: at(105), Coordinator: "p-1", Leading: true, Term: 8},
			{From: p0, At: at(109), Coordinator: "p-1", Term: 8},
		},
		Statuses: []Status{
			{At: at(0), Coordinator: "p-2", Term: 7}, {At: at(120), Term: 7}, {At: at(130), Coordinator: "p-1", Term: 8},
		},
		Routes: []Route{
			{At: at(110)}, {At: at(120), Addresses: []string{"10.0.0.2"}}, {At: at(145), Addresses: []string{"10.0.0.1"}},
		},
	}
}

func TestMeasure(t *testing.T) {
	cases := golden.Open(t, "testdata/measures.txt")
	for name, change := range map[string]func(*Record){
		"failover":                func(*Record) {},
		"no election":             func(r *Record) { r.Changes = r.Changes[:2] },
		"a survivor doesn't know": func(r *Record) { r.Changes = r.Changes[:3] },
		"the pod of a survivor ends": func(r *Record) {
			r.Changes[3] = Change{From: r.Changes[3].From, At: at(106), Gone: true}
		},
		"a survivor knows a later one only": func(r *Record) { r.Changes[3].Term = 9 },
		"no survivor":                       func(r *Record) { r.Agents = r.Agents[2:] },
		"the status skips a term":           func(r *Record) { r.Statuses[2].Term = 9 },
		"the status is behind":              func(r *Record) { r.Statuses[2].Term = 7 },
		"the Service routes to two":         func(r *Record) { r.Routes[2].Addresses = []string{"10.0.0.1", "10.0.0.2"} },
		"the coordinator stays, in a later term": func(r *Record) {
			r.Changes = []Change{{From: r.Agents[0], At: at(105), Coordinator: "p-2", Term: 8}, {
				From: r.Agents[1], At: at(106), Coordinator: "p-2", Term: 8,
			}}
		},
	} {
		r := failover()
		change(r)
		got := Measure(r)
		var text strings.Builder
		for _, d := range []struct {
			what string
			time *time.Duration
		}{{"elected", got.Elected}, {"known", got.Known}, {"status", got.Status}, {"service", got.Service}} {
			if d.time != nil {
				fmt.Fprintln(&text, d.what, *d.time)
			}
		}
		if got.Missing != "" {
			fmt.Fprintln(&text, "missing:", got.Missing)
		}
		cases.Compare(t, name, text.String())
	}
}

// The process of a pod that was deleted by force can be elected again before it is killed. That isn't a failover.
func TestElectionOfAnOustedVictimDoesntCount(t *testing.T) {
	old, replaced, other := Agent{"c", "1"}, Agent{"c", "2"}, Agent{"b", "3"}
	changes := []Change{
		{From: other, At: at(10), Coordinator: "c", Term: 6},
		{From: old, At: at(12), Coordinator: "c", Term: 6, Leading: true},
		{From: other, At: at(500), Coordinator: "c", Term: 7},
		{From: replaced, At: at(501), Coordinator: "c", Term: 7, Leading: true},
	}
	r := Record{Term: 5, Fault: start, Victims: map[string]bool{"1": true}, Agents: []Agent{old, other}, Changes: changes}
	for ousted, want := range map[bool]time.Duration{true: 500 * time.Millisecond, false: 10 * time.Millisecond} {
		r.Ousted = ousted
		if got := Measure(&r); got.Elected == nil || *got.Elected != want || *got.Known != want {
			t.Errorf("ousted: %t: got %+v, want %s", ousted, got, want)
		}
	}
}

// What is measured begins with the last answer of a coordinator, and not with a fault, which only others know.
func TestElectionsOfAGroupAreObserved(t *testing.T) {
	a, b := Agent{"a", "1"}, Agent{"b", "2"}
	r := &Record{Fault: at(0), Term: 5, HasService: true}
	r.Addresses = map[string][]string{"a": {"10.0.0.1"}, "b": {"10.0.0.2"}}
	r.Changes = []Change{
		{From: b, At: at(-10), Coordinator: "a", Term: 5},
		{From: b, At: at(100), Term: 5},
		{From: b, At: at(150), Coordinator: "b", Leading: true, Term: 6},
		{From: a, At: at(160), Coordinator: "b", Term: 6},
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
	expect.Equalf(t, table.String(), want, "table")
}
