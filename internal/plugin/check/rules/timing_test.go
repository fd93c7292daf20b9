package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
)

// answersIn returns a thousand answers in milliseconds, of which two took the longest.
func answersIn(p99, longest float64) control.Answers {
	return control.Answers{
		Count: 1000, P99Micros: int64(1000 * p99), LongestMicros: int64(1000 * longest), SecondMicros: int64(1000 * longest),
		LongestAt: time.Date(2026, time.November, 20, 14, 3, 7, 0, time.UTC),
	}
}

// pausedOnce returns answers of which one took much longer than the others.
func pausedOnce(longest, second float64) control.Answers {
	a := answersIn(3, longest)
	a.SecondMicros = int64(1000 * second)
	return a
}

// formatTiming formats what is found about the timing of the group, and the advice.
func formatTiming(f *Facts) string {
	var text strings.Builder
	for _, found := range checkTiming(f, &f.Groups[0]) {
		fmt.Fprintf(&text, "%s %s: %s\n", found.Level, found.Object, found.Message)
		if found.Advice != "" {
			fmt.Fprintf(&text, "advice: %s\n", found.Advice)
		}
	}
	return text.String()
}

// TestOnePause is named, and is no reason for another timing.
func TestOnePause(t *testing.T) {
	cases := golden.Open(t, "testdata/pauses.txt")
	later := pausedOnce(4050, 5)
	later.LongestAt = later.LongestAt.Add(time.Minute)
	old := control.Answers{Count: 1000, P99Micros: 3000, LongestMicros: 4_100_000}
	few := pausedOnce(4100, 5)
	few.Count = 20
	for name, answers := range map[string][]control.Answers{
		"a member":                        {answersIn(3, 5), pausedOnce(4100, 300)},
		"a member with few answers":       {answersIn(3, 5), few},
		"the coordinator":                 {pausedOnce(4050, 5), pausedOnce(4100, 5)},
		"members at different times":      {later, pausedOnce(4100, 5)},
		"a member, while another is slow": {answersIn(90, 95), pausedOnce(4100, 5)},
		"two pauses":                      {answersIn(3, 5), pausedOnce(4100, 301)},
		"an old agent":                    {answersIn(3, 5), old},
	} {
		f := healthy(t)
		m := Measurement{
			Timing: control.TimingInForce{HeartbeatMillis: 100, SuspicionTimeoutMillis: 400, LeaseMillis: 500}, Size: 3,
		}
		for i, a := range answers {
			m.Members = append(m.Members, MemberAnswers{fmt.Sprint("ledger-", i), a})
		}
		f.Measurements = map[types.NamespacedName]Measurement{{Namespace: "bank", Name: "ledger"}: m}
		cases.Compare(t, name, formatTiming(f))
	}
}

// TestTimingTooShort compares suspicion timeout and lease with measured delays.
func TestTimingTooShort(t *testing.T) {
	const fast = 3.0
	cases := golden.Open(t, "testdata/timing.txt")
	defaults := control.TimingInForce{HeartbeatMillis: 100, SuspicionTimeoutMillis: 400, LeaseMillis: 500}
	timing := func(change func(*control.TimingInForce)) control.TimingInForce {
		t := defaults
		change(&t)
		return t
	}
	noLease := timing(func(t *control.TimingInForce) { t.LeaseMillis = 0 })
	shortLease := timing(func(t *control.TimingInForce) { t.SuspicionTimeoutMillis, t.LeaseMillis = 1000, 300 })
	grows := timing(func(t *control.TimingInForce) { t.LongestSuspicionTimeoutMillis, t.LongestLeaseMillis = 1600, 2000 })
	few := answersIn(90, 90)
	few.Count = 20
	for name, c := range map[string]struct {
		timing  control.TimingInForce
		mode    v1.SafetyMode
		answers []control.Answers
	}{
		"fast":           {timing: defaults, answers: []control.Answers{answersIn(fast, 20), answersIn(fast, 12)}},
		"no answers yet": {timing: defaults},
		"as long as the suspicion timeout tolerates": {
			timing: defaults, answers: []control.Answers{answersIn(fast, 300), answersIn(fast, 5)},
		},
		"one member is slower than the suspicion timeout tolerates": {
			timing: defaults, answers: []control.Answers{answersIn(fast, 5), answersIn(fast, 310)},
		},
		"short leases are longer nearly always": {timing: timing(func(t *control.TimingInForce) {
			*t = control.TimingInForce{
				HeartbeatMillis: 20, SuspicionTimeoutMillis: 80, LongestSuspicionTimeoutMillis: 1600, LeaseMillis: 100,
				LongestLeaseMillis: 2000,
			}
		}), answers: []control.Answers{answersIn(30, 50), answersIn(30, 50)}},
		"a majority is slow, and the timing grows": {
			timing: grows, answers: []control.Answers{answersIn(fast, 1400), answersIn(fast, 1400)},
		},
		"a majority is slower than the longest lease permits": {
			timing: grows, answers: []control.Answers{answersIn(fast, 1900), answersIn(fast, 1900)},
		},
		"one member is slow, so the timing doesn't grow": {
			timing: grows, answers: []control.Answers{answersIn(fast, 5), answersIn(fast, 310)},
		},
		"one answer in a hundred takes a quarter of what the suspicion timeout tolerates": {
			timing: defaults, answers: []control.Answers{answersIn(80, 90), answersIn(fast, 5)},
		},
		"few answers": {timing: defaults, answers: []control.Answers{few, answersIn(fast, 5)}},
		"a majority is slower than the lease tolerates": {
			timing: shortLease, answers: []control.Answers{answersIn(fast, 190), answersIn(fast, 200)},
		},
		"a minority is slower than the lease tolerates": {
			timing: shortLease, answers: []control.Answers{answersIn(fast, 5), answersIn(fast, 200)},
		},
		"both are too short": {
			timing: defaults, answers: []control.Answers{answersIn(200, 700), answersIn(180, 650)},
		},
		"no lease in Available mode": {
			timing:  noLease,
			mode:    v1.Available,
			answers: []control.Answers{answersIn(80, 1200), answersIn(70, 900)},
		},
	} {
		f := healthy(t)
		f.Groups[0].Spec.Safety.Mode = c.mode
		m := Measurement{Timing: c.timing, Size: 3}
		for i, a := range c.answers {
			m.Members = append(m.Members, MemberAnswers{fmt.Sprint("ledger-", i), a})
		}
		f.Measurements = map[types.NamespacedName]Measurement{{Namespace: "bank", Name: "ledger"}: m}
		cases.Compare(t, name, formatTiming(f))
	}
}

// TestUnknownDelays: what can't be read is unknown, in one line for all groups, and doesn't hide other findings.
func TestUnknownDelays(t *testing.T) {
	f := healthy(t)
	for _, name := range []string{"mail", "queue"} {
		g := *f.Groups[0].DeepCopy()
		g.Name = name
		f.Groups = append(f.Groups, g)
	}
	for i := range f.Pods {
		f.Pods[i].Annotations[v1.AnnotationGroups] = "ledger, mail, queue"
	}
	f.Measurements = map[types.NamespacedName]Measurement{
		{Namespace: "bank", Name: "ledger"}: {Unknown: "it requires a permission"},
		{Namespace: "bank", Name: "mail"}:   {Unknown: "it requires a permission"},
		{Namespace: "bank", Name: "queue"}:  {Unknown: "its agent can't be reached"},
	}
	const want = `unknown timing of group bank/ledger and 1 more: It is unknown how long answers to heartbeats take: it requires a permission.
unknown timing of group bank/queue: It is unknown how long answers to heartbeats take: its agent can't be reached.`
	expect.Equal(t, format(Run(f)), want)
}
