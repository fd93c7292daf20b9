package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// countedAnswers counts the calls of Answered.
type countedAnswers struct {
	noMetrics

	count int
}

func (c *countedAnswers) Answered(time.Duration) { c.count++ }

// answerTest passes grants of member 2 to the process 1, whose life is 7.
type answerTest struct {
	answers

	counted countedAnswers
}

func newAnswerTest() *answerTest {
	t := &answerTest{}
	t.answers = answers{&t.counted, map[election.ID]*answerTimes{1: {}, 2: {}}}
	return t
}

func (a *answerTest) grant(at, took time.Duration, change func(*election.Message)) {
	r := &journal.Record{Input: election.Input{Kind: election.Receive, Now: election.Tick(at), Message: election.Message{
		Kind: election.Grant, From: 2, To: 1, Term: 5,
		Hold: election.Hold{Sent: election.Tick(at - took), Life: 9, RequesterLife: 7},
	}}}
	if change != nil {
		change(&r.Message)
	}
	a.observe(r, 1, 7)
}

// TestAnswersToHeartbeatsAreMeasured, except those that may have been deferred, and those that aren't for this process.
func TestAnswersToHeartbeatsAreMeasured(t *testing.T) {
	const ms = time.Millisecond
	a := newAnswerTest()
	at := time.Second
	next := func(took time.Duration, change func(*election.Message)) {
		at += 100 * ms
		a.grant(at, took, change)
	}
	expect := func(what string, want *control.Answers) {
		t.Helper()
		got := a.of(2, election.Tick(at))
		if got == nil || want == nil {
			expect.Equalf(t, got, want, "%s", what)
			return
		}
		got.LongestAt = time.Time{}
		if *got != *want || a.counted.count != int(want.Count) {
			t.Errorf("%s: got %+v and %d in the metrics, want %+v", what, *got, a.counted.count, *want)
		}
	}
	next(400*ms, nil)
	expect("the first grant in a term", nil)
	for range 99 {
		next(3*ms, nil)
	}
	expect("99 fast answers", &control.Answers{Count: 99, P99Micros: 3000, LongestMicros: 3000, SecondMicros: 3000})
	next(70*ms, nil)
	expect("one slow answer in 100",
		&control.Answers{Count: 100, P99Micros: 3500, LongestMicros: 70_000, SecondMicros: 3000})
	next(60*ms, nil)
	expect("two slow answers in 101",
		&control.Answers{Count: 101, P99Micros: 64_000, LongestMicros: 70_000, SecondMicros: 60_000})
	for name, change := range map[string]func(*election.Message){
		"a denial":                       func(m *election.Message) { m.Kind = election.Deny },
		"an answer to an earlier life":   func(m *election.Message) { m.Hold.RequesterLife = 6 },
		"the grant of the process":       func(m *election.Message) { m.From = 1 },
		"an answer before the heartbeat": func(m *election.Message) { m.Hold.Sent = election.Tick(time.Hour) },
		"the first grant of a new life":  func(m *election.Message) { m.Hold.Life = 10 },
		"the first grant in a new term":  func(m *election.Message) { m.Term, m.Hold.Life = 6, 10 },
	} {
		before := *a.of(2, election.Tick(at))
		next(300*ms, change)
		after := *a.of(2, election.Tick(at))
		after.LongestAt = before.LongestAt // The time of the test isn't that of the agent.
		if after != before {
			t.Errorf("%s: got %+v after %+v", name, after, before)
		}
		if next(300*ms, change); a.of(1, election.Tick(at)) != nil {
			t.Errorf("%s: the process measured its own answer", name)
		}
		a = newAnswerTest()
		next(0, nil)
		next(ms, nil)
	}
}

// TestOnePauseIsOneSample: the heartbeats during a pause of a member are all answered at its end.
func TestOnePauseIsOneSample(t *testing.T) {
	const interval, pause, trip = 100 * time.Millisecond, 4 * time.Second, 5 * time.Millisecond
	for _, roundTrip := range []time.Duration{trip, 3 * interval} {
		a := newAnswerTest()
		sent, received, pauseAt := time.Minute, time.Duration(0), time.Minute+40*time.Second
		var resumedAt time.Time
		for ; sent < pauseAt+time.Minute; sent += interval {
			arrived := sent + roundTrip
			if sent >= pauseAt && arrived < pauseAt+pause {
				arrived, resumedAt = pauseAt+pause, time.Now()
			}
			received = max(received+time.Microsecond, arrived)
			a.grant(received, received-sent, nil)
		}
		got := a.of(2, election.Tick(received))
		if got == nil || got.Count < 900 || got.Count > 970 || got.LongestMicros != pause.Microseconds() ||
			got.SecondMicros > (roundTrip+interval).Microseconds() {
			t.Fatalf("round trip %s: got %+v, want one answer of the pause", roundTrip, got)
		}
		if at := resumedAt.Add(-(received - pauseAt - pause)); got.LongestAt.Sub(at).Abs() > time.Second {
			t.Errorf("round trip %s: got a pause until %s, want %s", roundTrip, got.LongestAt, at)
		}
	}
}

// TestOldAnswersAreForgotten after five to ten minutes.
func TestOldAnswersAreForgotten(t *testing.T) {
	a := newAnswerTest()
	const slow = 50 * time.Millisecond
	a.grant(time.Minute, 0, nil)
	a.grant(time.Minute, slow, nil)
	for _, c := range []struct {
		at   time.Duration
		want int64
	}{
		{4 * time.Minute, slow.Microseconds()},
		{9 * time.Minute, slow.Microseconds()},
		{11 * time.Minute, time.Millisecond.Microseconds()},
	} {
		a.grant(c.at, time.Millisecond, nil)
		if got := a.of(2, election.Tick(c.at)); got == nil || got.LongestMicros != c.want {
			t.Errorf("after %s: got %+v, want %d µs as the longest time", c.at, got, c.want)
		}
	}
	if got := a.of(2, election.Tick(time.Hour)); got != nil {
		t.Errorf("after an hour: got %+v, want none", got)
	}
}

// TestAnswerBuckets: each time is at most the bound of its bucket, which is too high by at most a
// quarter, or by 250 µs.
func TestAnswerBuckets(t *testing.T) {
	last := 0
	for took := election.Tick(0); took < election.Tick(40*time.Second); took += took/50 + 7001 {
		b := answerBucket(took)
		if b < last || b >= answerBuckets {
			t.Fatalf("got bucket %d for %d after bucket %d", b, took, last)
		}
		last = b
		if b == answerBuckets-1 {
			continue
		}
		if bound := answerBound(b); took >= bound || bound > took+max(took/4, answerUnit) {
			t.Errorf("got bound %d for %d", bound, took)
		}
	}
	if last != answerBuckets-1 {
		t.Errorf("got bucket %d for the longest time, want the last one", last)
	}
}

// TestMeasuringAllocatesNothing: heartbeats are what an idle agent does.
func TestMeasuringAllocatesNothing(t *testing.T) {
	a := newAnswerTest()
	in := &election.Input{Kind: election.Receive, Now: election.Tick(time.Second), Message: election.Message{
		Kind: election.Grant, From: 2, To: 1, Term: 5, Hold: election.Hold{Life: 9, RequesterLife: 7},
	}}
	if n := testing.AllocsPerRun(100, func() { // They are the first grants in a term.
		in.Message.Term++
		a.observe(&journal.Record{Input: *in}, 1, 7)
	}); n != 0 {
		t.Errorf("got %v allocations in an election", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		in.Now += election.Tick(time.Minute)
		a.observe(&journal.Record{Input: *in}, 1, 7)
	}); n != 0 || a.counted.count == 0 {
		t.Errorf("got %v allocations for an answer, and %d answers", n, a.counted.count)
	}
}

func TestDepartedMembersAreForgotten(t *testing.T) {
	a := newAnswerTest()
	a.grant(time.Second, 0, nil)
	a.grant(time.Second, 0, nil)
	roster := func(members ...election.Member) *election.Roster {
		r, err := election.NewRoster(1, members)
		must.Succeed(t, err)
		return r
	}
	a.use(roster(election.Member{ID: 1, Priority: 1}, election.Member{ID: 2, Priority: 2}))
	if a.of(2, election.Tick(time.Second)) == nil {
		t.Error("a member was forgotten")
	}
	a.use(roster(election.Member{ID: 1, Priority: 1}))
	if a.of(2, election.Tick(time.Second)) != nil {
		t.Error("a departed member wasn't forgotten")
	}
	a.grant(2*time.Second, 0, nil)
	a.grant(2*time.Second, 0, nil)
	if a.of(2, election.Tick(2*time.Second)) != nil {
		t.Error("a departed member was measured")
	}
	a.use(roster(election.Member{ID: 1, Priority: 1}, election.Member{ID: 2, Priority: 2}))
	a.grant(3*time.Second, 0, nil)
	a.grant(3*time.Second, 0, nil)
	if a.of(2, election.Tick(3*time.Second)) == nil {
		t.Error("a member that joined again wasn't measured")
	}
}

// TestStatusHasAnswers: those of the followers to the coordinator.
func TestStatusHasAnswers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil).group("c")
		testwait.NoError(t, func() error {
			status, err := c.Status(t.Context())
			for _, p := range status.Processes {
				if (p.Answers != nil) != (p.Name != "c") {
					return fmt.Errorf("%s: got answers %+v, want some of the followers", p.Name, p.Answers)
				}
			}
			return err
		})
	})
}
