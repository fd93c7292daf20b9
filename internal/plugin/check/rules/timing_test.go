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

// TestOnePause is named, and is no reason for another timing.
func TestOnePause(t *testing.T) {
	const (
		usual     = "99 % of the answers took up to 3.0 ms, the longest "
		timing    = " Heartbeat 100 ms, suspicion timeout 400 ms, lease 500 ms."
		notLonger = " It was the only delay that the timing doesn't tolerate, so it is no reason for a longer one."
		network   = ", or the network to it, paused for 4.1 s at 14:03:07 UTC." + notLonger
	)
	later := pausedOnce(4050, 5)
	later.LongestAt = later.LongestAt.Add(time.Minute)
	old := control.Answers{Count: 1000, P99Micros: 3000, LongestMicros: 4_100_000}
	few := pausedOnce(4100, 5)
	few.Count = 20
	for name, c := range map[string]struct {
		answers []control.Answers
		want    string
	}{
		"a member": {
			[]control.Answers{answersIn(3, 5), pausedOnce(4100, 300)},
			"ok timing of group bank/ledger: " + usual + "4100 ms (ledger-1)." + timing + "\nwarning timing of group bank/ledger: The agent of ledger-1" + network,
		},
		"a member with few answers": {
			[]control.Answers{answersIn(3, 5), few},
			"ok timing of group bank/ledger: " + usual + "4100 ms (ledger-1)." + timing + "\nwarning timing of group bank/ledger: The agent of ledger-1" + network,
		},
		"the coordinator": {
			[]control.Answers{pausedOnce(4050, 5), pausedOnce(4100, 5)},
			"ok timing of group bank/ledger: " + usual + "4100 ms (ledger-1)." + timing + "\nwarning timing of group bank/ledger: The coordinator's agent (ledger-2)" + network,
		},
		"members at different times": {
			[]control.Answers{later, pausedOnce(4100, 5)},
			"ok timing of group bank/ledger: " + usual + "4100 ms (ledger-1)." + timing + "\nwarning timing of group bank/ledger: The agent of ledger-1" + network,
		},
		"a member, while another is slow": {
			[]control.Answers{answersIn(90, 95), pausedOnce(4100, 5)},
			"warning timing of group bank/ledger: The suspicion timeout is too short for the answers of ledger-0. 99 % of the answers took up to 90 ms, the longest 95 ms (ledger-0)." +
				timing + "\nwarning timing of group bank/ledger: The agent of ledger-1" + strings.TrimSuffix(network, notLonger),
		},
		"two pauses": {
			[]control.Answers{answersIn(3, 5), pausedOnce(4100, 301)},
			"warning timing of group bank/ledger: The suspicion timeout is too short for the answers of ledger-1. " + usual + "4100 ms (ledger-1)." + timing,
		},
		"an old agent": {
			[]control.Answers{answersIn(3, 5), old},
			"warning timing of group bank/ledger: The suspicion timeout is too short for the answers of ledger-1. " + usual + "4100 ms (ledger-1)." + timing,
		},
	} {
		f := healthy(t)
		m := Measurement{Timing: &control.TimingInForce{HeartbeatMillis: 100, SuspicionTimeoutMillis: 400, LeaseMillis: 500}, Size: 3}
		for i, a := range c.answers {
			m.Members = append(m.Members, MemberAnswers{fmt.Sprint("ledger-", i), a})
		}
		f.Measurements = map[types.NamespacedName]Measurement{{Namespace: "bank", Name: "ledger"}: m}
		var got []string
		for _, finding := range checkTiming(f, &f.Groups[0]) {
			got = append(got, fmt.Sprintf("%s %s: %s", finding.Level, finding.Object, finding.Message))
		}
		expect.Equalf(t, strings.Join(got, "\n"), c.want, "%s", name)
	}
}

// TestTimingTooShort compares suspicion timeout and lease with measured delays.
func TestTimingTooShort(t *testing.T) {
	const (
		usual     = "Heartbeat 100 ms, suspicion timeout 400 ms, lease 500 ms."
		longer    = "Heartbeat 100 ms, suspicion timeout 400 to 1600 ms, lease 500 to 2000 ms."
		available = "Heartbeat 100 ms, suspicion timeout 400 ms."
		fast      = 3.0
		findOut   = "Find out what delays agents, such as a CPU limit, the network or a busy node, or "
	)
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
		timing control.TimingInForce
		mode   v1.SafetyMode
		// answers are those of ledger-0, ledger-1 and so on; ledger-2 is the coordinator.
		answers []control.Answers
		want    string
		advice  string
	}{
		"fast": {
			timing: defaults, answers: []control.Answers{answersIn(fast, 20), answersIn(fast, 12)},
			want: "ok: 99 % of the answers took up to 3.0 ms, the longest 20 ms (ledger-0). " + usual,
		},
		"no answers yet": {timing: defaults, want: "ok: No answers to heartbeats were measured yet. " + usual},
		"as long as the suspicion timeout tolerates": {
			timing: defaults, answers: []control.Answers{answersIn(fast, 300), answersIn(fast, 5)},
			want: "ok: 99 % of the answers took up to 3.0 ms, the longest 300 ms (ledger-0). " + usual,
		},
		"one member is slower than the suspicion timeout tolerates": {
			timing: defaults, answers: []control.Answers{answersIn(fast, 5), answersIn(fast, 310)},
			want: "warning: The suspicion timeout is too short for the answers of ledger-1. " +
				"99 % of the answers took up to 3.0 ms, the longest 310 ms (ledger-1). " + usual,
			advice: findOut + "set spec.timing.suspicionTimeoutMillis to at least 410.",
		},
		"short leases are longer nearly always": {
			timing: timing(func(t *control.TimingInForce) {
				*t = control.TimingInForce{HeartbeatMillis: 20, SuspicionTimeoutMillis: 80, LongestSuspicionTimeoutMillis: 1600, LeaseMillis: 100, LongestLeaseMillis: 2000}
			}),
			answers: []control.Answers{answersIn(30, 50), answersIn(30, 50)},
			want: "ok: 99 % of the answers took up to 30 ms, the longest 50 ms (ledger-0). Heartbeat 20 ms, suspicion timeout 80 to 1600 ms, lease 100 to 2000 ms." +
				" A majority often answers so late that leases last 120 ms, and a silent node is noticed as late.",
		},
		"a majority is slow, and the timing grows": {
			timing: grows, answers: []control.Answers{answersIn(fast, 1400), answersIn(fast, 1400)},
			want: "ok: 99 % of the answers took up to 3.0 ms, the longest 1400 ms (ledger-0). " + longer,
		},
		"a majority is slower than the longest lease permits": {
			timing: grows, answers: []control.Answers{answersIn(fast, 1900), answersIn(fast, 1900)},
			want: "warning: The suspicion timeout and the lease are too short for the answers of a majority. " +
				"99 % of the answers took up to 3.0 ms, the longest 1900 ms (ledger-0). " + longer,
			advice: findOut + "set spec.timing.suspicionTimeoutMillis to at least 2000, and spec.safety.leaseMillis to at least 2200.",
		},
		"one member is slow, so the timing doesn't grow": {
			timing: grows, answers: []control.Answers{answersIn(fast, 5), answersIn(fast, 310)},
			want: "warning: The suspicion timeout is too short for the answers of ledger-1. " +
				"99 % of the answers took up to 3.0 ms, the longest 310 ms (ledger-1). " + longer,
			advice: findOut + "set spec.timing.suspicionTimeoutMillis to at least 410.",
		},
		"one answer in a hundred takes a quarter of what the suspicion timeout tolerates": {
			timing: defaults, answers: []control.Answers{answersIn(80, 90), answersIn(fast, 5)},
			want: "warning: The suspicion timeout is too short for the answers of ledger-0. " +
				"99 % of the answers took up to 80 ms, the longest 90 ms (ledger-0). " + usual,
			advice: findOut + "set spec.timing.suspicionTimeoutMillis to at least 420.",
		},
		"few answers": {
			timing: defaults, answers: []control.Answers{few, answersIn(fast, 5)},
			want: "ok: 99 % of the answers took up to 90 ms, the longest 90 ms (ledger-0). " + usual,
		},
		"a majority is slower than the lease tolerates": {
			timing: shortLease, answers: []control.Answers{answersIn(fast, 190), answersIn(fast, 200)},
			want: "warning: The lease is too short for the answers of a majority. " +
				"99 % of the answers took up to 3.0 ms, the longest 200 ms (ledger-1). Heartbeat 100 ms, suspicion timeout 1000 ms, lease 300 ms.",
			advice: findOut + "set spec.safety.leaseMillis to at least 310.",
		},
		"a minority is slower than the lease tolerates": {
			timing: shortLease, answers: []control.Answers{answersIn(fast, 5), answersIn(fast, 200)},
			want: "ok: 99 % of the answers took up to 3.0 ms, the longest 200 ms (ledger-1). Heartbeat 100 ms, suspicion timeout 1000 ms, lease 300 ms.",
		},
		"both are too short": {
			timing: defaults, answers: []control.Answers{answersIn(200, 700), answersIn(180, 650)},
			want: "warning: The suspicion timeout and the lease are too short for the answers of a majority. " +
				"99 % of the answers took up to 200 ms, the longest 700 ms (ledger-0). " + usual,
			advice: findOut + "set spec.timing.suspicionTimeoutMillis to at least 900, and spec.safety.leaseMillis to at least 880.",
		},
		"no lease in Available mode": {
			timing: noLease, mode: v1.Available, answers: []control.Answers{answersIn(80, 1200), answersIn(70, 900)},
			want: "warning: The suspicion timeout is too short for the answers of ledger-0. " +
				"99 % of the answers took up to 80 ms, the longest 1200 ms (ledger-0). " + available,
			advice: findOut + "set spec.timing.suspicionTimeoutMillis to at least 1300.",
		},
	} {
		f := healthy(t)
		f.Groups[0].Spec.Safety.Mode = c.mode
		m := Measurement{Timing: &c.timing, Size: 3}
		for i, a := range c.answers {
			m.Members = append(m.Members, MemberAnswers{fmt.Sprint("ledger-", i), a})
		}
		f.Measurements = map[types.NamespacedName]Measurement{{Namespace: "bank", Name: "ledger"}: m}
		got := checkTiming(f, &f.Groups[0])
		if len(got) != 1 || got[0].Object != "timing of group bank/ledger" {
			t.Errorf("%s: got %+v, want one finding", name, got)
			continue
		}
		if text := string(got[0].Level) + ": " + got[0].Message; text != c.want || got[0].Advice != c.advice {
			t.Errorf("%s: got\n%s\n%s\nwant\n%s\n%s", name, text, got[0].Advice, c.want, c.advice)
		}
	}
}

// TestUnknownDelays: what can't be read is unknown, in one line for all groups, and doesn't hide
// other findings.
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
		{Namespace: "bank", Name: "queue"}:  {},
	}
	const want = `unknown timing of group bank/ledger and 1 more: It is unknown how long answers to heartbeats take: it requires a permission.
unknown timing of group bank/queue: It is unknown how long answers to heartbeats take: the coordinator's agent is too old to measure it; create its pod again.`
	expect.Equal(t, format(Run(f)), want)
	expect.Lenf(t, Timings(f), 0, "timing")
}

// TestTimings: the figures for programs.
func TestTimings(t *testing.T) {
	f := healthy(t)
	f.Measurements = map[types.NamespacedName]Measurement{{Namespace: "bank", Name: "ledger"}: {
		Timing: &control.TimingInForce{HeartbeatMillis: 100, SuspicionTimeoutMillis: 400, LeaseMillis: 500}, Size: 3,
		Members: []MemberAnswers{{"ledger-0", answersIn(4, 6)}, {"ledger-1", answersIn(3, 20)}},
	}}
	want := Timing{
		Group: "bank/ledger", HeartbeatMillis: 100, SuspicionTimeoutMillis: 400, LeaseMillis: 500,
		P99Micros: 4000, LongestMicros: 20_000, LongestPod: "ledger-1",
	}
	if got := Timings(f); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
