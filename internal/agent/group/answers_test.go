package group

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// answerTest passes grants of member 2 to the process 1, whose life is 7.
type answerTest struct {
	answers

	all []time.Duration // what was measured
}

func newAnswerTest() *answerTest {
	t := &answerTest{}
	t.answers = answers{func(took time.Duration) { t.all = append(t.all, took) }, map[election.ID]answer{}}
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
	for name, c := range map[string]struct {
		change   func(*election.Message)
		measured bool
	}{
		"a renewal":                      {func(*election.Message) {}, true},
		"a denial":                       {func(m *election.Message) { m.Kind = election.Deny }, false},
		"an answer to an earlier life":   {func(m *election.Message) { m.Hold.RequesterLife = 6 }, false},
		"the grant of the process":       {func(m *election.Message) { m.From = 1 }, false},
		"an answer before the heartbeat": {func(m *election.Message) { m.Hold.Sent = election.Tick(time.Hour) }, false},
		"the first grant of a new life":  {func(m *election.Message) { m.Hold.Life = 10 }, false},
		"the first grant in a new term":  {func(m *election.Message) { m.Term = 6 }, false},
	} {
		a := newAnswerTest()
		a.grant(time.Second, 400*ms, nil)
		expect.Equalf(t, len(a.all), 0, "%s: answers after the first grant in a term", name)
		a.grant(time.Second+100*ms, 3*ms, nil)
		a.grant(time.Second+500*ms, 300*ms, c.change)
		want := []time.Duration{3 * ms}
		if c.measured {
			want = append(want, 300*ms)
		}
		expect.EqualSlicesf(t, a.all, want, "%s: answers", name)
	}
}

// TestOnePauseIsOneSample: the heartbeats during a pause of a member are all answered at its end.
func TestOnePauseIsOneSample(t *testing.T) {
	const interval, pause, trip = 100 * time.Millisecond, 4 * time.Second, 5 * time.Millisecond
	for _, roundTrip := range []time.Duration{trip, 3 * interval} {
		a := newAnswerTest()
		sent, received, pauseAt := time.Minute, time.Duration(0), time.Minute+40*time.Second
		for ; sent < pauseAt+time.Minute; sent += interval {
			arrived := sent + roundTrip
			if sent >= pauseAt && arrived < pauseAt+pause {
				arrived = pauseAt + pause
			}
			received = max(received+time.Microsecond, arrived)
			a.grant(received, received-sent, nil)
		}
		late := 0
		for _, took := range a.all {
			if took > roundTrip+interval {
				late++
			}
		}
		if n := len(a.all); n < 900 || n > 970 || late != 1 {
			t.Errorf("round trip %s: got %d answers, %d of them late, want one answer of the pause", roundTrip, n, late)
		}
	}
}

// TestMeasuringAllocatesNothing: heartbeats are what an idle agent does.
func TestMeasuringAllocatesNothing(t *testing.T) {
	a := newAnswerTest()
	a.all = make([]time.Duration, 0, 1000)
	in := &election.Input{Kind: election.Receive, Now: election.Tick(time.Second), Message: election.Message{
		Kind: election.Grant, From: 2, To: 1, Term: 5, Hold: election.Hold{Life: 9, RequesterLife: 7},
	}}
	if n := testing.AllocsPerRun(100, func() {
		in.Now += election.Tick(time.Minute)
		a.observe(&journal.Record{Input: *in}, 1, 7)
	}); n != 0 || len(a.all) == 0 {
		t.Errorf("got %v allocations for an answer, and %d answers", n, len(a.all))
	}
}

// TestDepartedMembersAreForgotten: with a list, what is known of grants under the one before.
func TestDepartedMembersAreForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil).group("c")
		known := func() (n int) {
			expect.Succeed(t, c.call(t.Context(), func() { n = len(c.answers.last) }))
			return n
		}
		testwait.Until(t, "two members have answered", func() bool { return known() == 2 })
		expect.Succeed(t, c.call(t.Context(), func() {
			c.useList(c.list, c.roster)
			expect.Equalf(t, len(c.answers.last), 0, "members after another list")
		}))
	})
}
