package group

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// formatEnding formats the end of a tenure, as in "c in term 7: crash, gap 5ms".
func formatEnding(e *control.Ending) string {
	if e == nil {
		return "none"
	}
	text := fmt.Sprintf("%s in term %d: %s", e.Coordinator, e.Term, e.Cause)
	if e.GapMicros != nil {
		text += fmt.Sprint(", gap ", time.Duration(*e.GapMicros)*time.Microsecond)
	}
	return text
}

// TestEndings: member 2, b, observes the end of a tenure of 3, c. Time is in milliseconds.
func TestEndings(t *testing.T) {
	at := func(millis int) election.Tick { return election.Tick(time.Duration(millis) * time.Millisecond) }
	status := func(id election.ID, term election.Term) election.Status {
		return election.Status{Coordinator: id, Term: term}
	}
	beat := func(millis int) election.Input {
		return election.Input{Kind: election.Receive, Now: at(millis), Message: election.Message{Kind: election.Beat, From: 3}}
	}
	resigned := []election.Event{{Kind: election.OfficeResigned}}
	type step struct {
		in     election.Input
		status election.Status
		events []election.Event
	}
	begin := []step{{beat(0), status(3, 7), nil}, {beat(100), status(3, 7), nil}}
	for name, c := range map[string]struct {
		steps []step
		want  string
	}{
		"no tenure has ended": {nil, "none"},
		"a crash": {[]step{
			{election.Input{Kind: election.Ended, Now: at(150), Peer: 3}, status(election.None, 7), nil},
			{election.Input{Kind: election.Receive, Now: at(155), Message: election.Message{From: 1}}, status(2, 8), nil},
		}, "c in term 7: crash, gap 5ms"},
		"no coordinator yet": {[]step{
			{election.Input{Kind: election.Ended, Now: at(150), Peer: 3}, status(election.None, 7), nil},
		}, "c in term 7: crash"},
		"silence lasts since the last message": {[]step{
			{election.Input{Kind: election.TimePassed, Now: at(500)}, status(election.None, 7), nil},
			{election.Input{Kind: election.Receive, Now: at(510), Message: election.Message{From: 1}}, status(1, 8), nil},
		}, "c in term 7: silence, gap 410ms"},
		"the coordinator resigned": {[]step{
			{election.Input{Kind: election.Receive, Now: at(150), Message: election.Message{From: 3, Kind: election.Resigned}}, status(election.None, 7), nil},
			{election.Input{Kind: election.TimePassed, Now: at(151)}, status(2, 8), nil},
		}, "c in term 7: hand-over, gap 1ms"},
		"the next coordinator is the first sign": {[]step{
			{election.Input{Kind: election.Receive, Now: at(150), Message: election.Message{From: 1, Kind: election.Beat}}, status(1, 8), nil},
		}, "c in term 7: unknown"},
		"another term of the same coordinator": {[]step{
			{election.Input{Kind: election.Receive, Now: at(150), Message: election.Message{From: 3, Kind: election.Beat}}, status(3, 8), nil},
		}, "c in term 7: unknown"},
		"the member list changed": {[]step{
			{election.Input{Kind: election.Adopt, Now: at(150)}, status(election.None, 7), nil},
		}, "c in term 7: membership"},
		"this process hands over when its application has not stopped in time": {[]step{
			{election.Input{Kind: election.TimePassed, Now: at(150)}, status(2, 8), nil},
			{election.Input{Kind: election.TimePassed, Now: at(200)}, status(election.None, 8), resigned},
		}, "b in term 8: hand-over"},
		"this process loses its lease": {[]step{
			{election.Input{Kind: election.TimePassed, Now: at(150)}, status(2, 8), nil},
			{election.Input{Kind: election.TimePassed, Now: at(200)}, status(election.None, 8), nil},
		}, "b in term 8: lapse"},
		"only the last tenure counts": {[]step{
			{election.Input{Kind: election.Ended, Now: at(150), Peer: 3}, status(election.None, 7), nil},
			{election.Input{Kind: election.TimePassed, Now: at(155)}, status(1, 8), nil},
			{election.Input{Kind: election.Ended, Now: at(250), Peer: 1}, status(election.None, 8), nil},
		}, "a in term 8: crash"},
	} {
		names := newNames()
		for _, name := range []string{"a", "b", "c"} {
			names.add(name)
		}
		o := newObserver(noMetrics{}, 0)
		for _, s := range append(slices.Clip(begin), c.steps...) {
			o.observe(&s.in, 2, s.status, s.events)
		}
		if got := formatEnding(o.endings.last.report(names)); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// TestReportsStepDown: the coordinator reports that a user made it resign. On a machine that is
// too slow for the timing, it may lose its lease first; then the test tries again, because
// a returns to the office by itself.
func TestReportsStepDown(t *testing.T) {
	cluster, reports := newReportingCluster(t, false, map[string]int{"a": 30, "b": 20, "c": 10})
	found := func() bool {
		reports.mu.Lock()
		defer reports.mu.Unlock()
		return slices.ContainsFunc(reports.reports, func(r control.Report) bool {
			return r.Ended != nil && r.Ended.Coordinator == "a" && r.Ended.Cause == control.EndStepDown && r.Ended.At.After(reports.reports[0].ElectedAt)
		})
	}
	for ctx := testContext(t); !found(); {
		if ctx.Err() != nil {
			t.Fatalf("got no report of a step-down; the last is %+v", reports.last())
		}
		waitFor(t, cluster.group("a"), "a leads", isLeading)
		if err := cluster.group("a").stepDownTo("b")(ctx); err == nil {
			reports.waitFor(t, "a has lost the office", func(r control.Report) bool { return r.Ended != nil })
		}
	}
}
