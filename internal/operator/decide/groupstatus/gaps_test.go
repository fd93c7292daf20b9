package groupstatus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// formatGaps formats the counts, as in "06-01 2 in 5 ms; 1 ms c Crash, ...".
func formatGaps(gaps *v1.Gaps) string {
	var days, longest []string
	for _, day := range gaps.Days {
		days = append(days,
			fmt.Sprintf("%s %d in %s", day.Date[5:], day.Count, v1.FormatGap(time.Duration(day.Micros)*time.Microsecond)))
	}
	for _, gap := range gaps.Longest {
		longest = append(longest,
			fmt.Sprintf("%s %s %s", v1.FormatGap(time.Duration(gap.Micros)*time.Microsecond), gap.Pod, gap.EndReason))
	}
	return strings.Join(days, ", ") + "; " + strings.Join(longest, ", ")
}

// TestGapsAreCounted: after each tenure, the gap counts once, also while the status changes for other reasons.
func TestGapsAreCounted(t *testing.T) {
	var gaps *v1.Gaps
	var history []v1.Tenure
	lead := func(pod string, at, gap time.Duration, reason v1.EndReason) {
		from := metav1.NewMicroTime(noon.Add(at))
		tenure := v1.Tenure{Pod: pod, From: from, GapMicros: new(gap.Microseconds())}
		if len(history) > 0 {
			history[0].EndReason = reason
		} else {
			tenure.GapMicros = nil
		}
		history = append([]v1.Tenure{tenure}, history...)
		gaps = countGap(gaps, history)
	}
	const day = 24 * time.Hour
	for _, step := range []struct {
		at, gap time.Duration
		reason  v1.EndReason
		want    string
	}{
		{0, 0, "", "; "},
		{time.Hour, 5 * time.Millisecond, v1.EndCrash, "06-01 1 in 5.0 ms; 5.0 ms a Crash"},
		{2 * time.Hour, time.Millisecond, v1.EndPreempted, "06-01 2 in 6.0 ms; 5.0 ms a Crash, 1.0 ms a Preempted"},
		{
			day, time.Second, v1.EndSilence,
			"06-02 1 in 1.0 s, 06-01 2 in 6.0 ms; 1.0 s a Silence, 5.0 ms a Crash, 1.0 ms a Preempted",
		},
		{
			2 * day, 2 * time.Millisecond, v1.EndLapse,
			"06-03 1 in 2.0 ms, 06-02 1 in 1.0 s, 06-01 2 in 6.0 ms; 1.0 s a Silence, 5.0 ms a Crash, 2.0 ms a Lapse",
		},
		// The first day is forgotten, with its gaps.
		{
			30*day + 3*time.Hour, 3 * time.Millisecond, v1.EndCrash,
			"07-01 1 in 3.0 ms, 06-03 1 in 2.0 ms, 06-02 1 in 1.0 s; 1.0 s a Silence, 3.0 ms a Crash, 2.0 ms a Lapse",
		},
		{90 * day, 4 * time.Millisecond, v1.EndCrash, "08-30 1 in 4.0 ms; 4.0 ms a Crash"},
	} {
		lead("a", step.at, step.gap, step.reason)
		expect.Equalf(t, formatGaps(gaps), step.want, "after %s", step.at)
		if others := min(gaps.Others, 1); gaps.Failures+gaps.Others != int64(len(history)-1) || gaps.Others != others ||
			gaps.OtherMicros != 1000*others {
			t.Errorf("after %s: got %+v, want the sums of all gaps, one of 1 ms after a hand-over", step.at, gaps)
		}
	}
	if !gaps.Since.Time.Equal(noon) {
		t.Errorf("got gaps since %s, want the first tenure", gaps.Since)
	}
	for i := range 100 { // one a day
		lead("b", time.Duration(100+i)*day, time.Duration(i+1)*time.Millisecond, v1.EndCrash)
	}
	if len(gaps.Days) != v1.GapDays || len(gaps.Longest) != 3 || gaps.Longest[0].Micros != 100_000 {
		t.Errorf("got %d days and the longest %v, want %d days and the three longest",
			len(gaps.Days), gaps.Longest, v1.GapDays)
	}
}

// TestGapInStatus: the status has the gap that agents have measured, and doesn't count it again.
func TestGapInStatus(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.crash("c")
	s.reportEnd("c", control.EndCrash, 4800*time.Microsecond, "a", "b")
	s.elect("b")
	s.evaluate()
	const want = "06-01 1 in 4.8 ms; 4.8 ms c Crash"
	expect.Equalf(t, formatGaps(s.Group.Status.Gaps), want, "history: %s", formatHistory(&s.Group.Status))
	s.crash("a") // The status changes, the coordinator doesn't.
	s.evaluate()
	expect.Equalf(t, formatGaps(s.Group.Status.Gaps), want, "after another change")
}

// TestGapsThatNoAgentMeasured: the history and the gaps have the same ones, and none if the end is not known.
func TestGapsThatNoAgentMeasured(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.setTime(time.Minute)
	s.reportCoordinator("", s.names...)
	s.evaluate()
	s.setTime(2 * time.Minute)
	s.elect("b")
	expect.Equalf(t, s.evaluatedHistory(), "2 b after 1m0s | 1 c until 1m0s Unknown", "the operator has seen a gap")
	s.setTime(3 * time.Minute)
	s.elect("a")
	s.setTime(4 * time.Minute)
	expect.Equalf(t, s.evaluatedHistory(), "3 a | 2 b after 1m0s until 3m0s Unknown | 1 c until 1m0s Unknown",
		"it learns of the end later")
	expect.Equalf(t, formatGaps(s.Group.Status.Gaps), "06-01 1 in 1m0s; 1m0s c Unknown", "gaps")
}
