package chaos

import (
	"reflect"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestBudgets(t *testing.T) {
	r := newResult() // 100 elections by force-pod, in 1 to 100 ms, and one in 1.5 ms
	r.Faults[3].TwoLeaders, r.Faults[4].Flaps = new(0.0), 2
	r.Violations = []Violation{{Fault: 4, Problem: Problem{OneLeader, ""}}, {Fault: 9, Problem: Problem{Recovery, ""}}}
	for text, want := range map[string]string{
		"p99(elected) > 99ms":      "",
		"p99(elected) > 98ms":      "p99(elected) > 98ms: got 99.0 ms",
		"median(elected)>0.01s":    "median(elected)>0.01s: got 50.0 ms",
		" max(elected)  > 100ms":   "",
		"max(settled) > 7.999s":    "max(settled) > 7.999s: got 8000 ms",
		"p99(service) > 1h":        "p99(service) > 1h: nothing was measured",
		"two-leaders > 0":          "two-leaders > 0: got 1",
		"two-leaders > 1":          "",
		"flaps > 1":                "flaps > 1: got 2",
		"violations > 1":           "violations > 1: got 2",
		"violations > 2":           "",
		"p99(known) > 1":           "error: p99(known) must have a duration such as 2s as its limit, got \"1\"",
		"flaps > 1s":               "error: flaps must have a whole number as its limit, got \"1s\"",
		"p99(elected) < 2s":        "error: must be such as 'p99(elected) > 2s', with ",
		"p50(elected) > 2s":        "error: must be such as 'p99(elected) > 2s', with ",
		"p99(two-leaders) > 2s":    "error: must be such as 'p99(elected) > 2s', with ",
		"p99(elected) > 2s or not": "error: must be such as 'p99(elected) > 2s', with ",
	} {
		b, err := ParseBudget(text)
		if wanted, ok := strings.CutPrefix(want, "error: "); ok {
			if err == nil || !strings.HasPrefix(err.Error(), wanted) {
				t.Errorf("%s: got error %v, want %s", text, err, wanted)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		expect.Equalf(t, b.Exceeded(r), want, "%s", text)
	}
}

func TestBudgetsOfWhatIsNotMeasuredAreRefused(t *testing.T) {
	for text, want := range map[string][3]bool{ // for a group, for an answer, for a Lease
		"p99(elected) > 2s": {true, true, true}, "max(service) > 2s": {true, false, false}, "flaps > 0": {false, true, true},
		"two-leaders > 0": {true, true, false},
	} {
		b, err := ParseBudget(text)
		must.Succeed(t, err)
		if got := [3]bool{b.NotMeasured(true, true, false) == "", b.NotMeasured(false, true,
			false) == "", b.NotMeasured(false, false, false) == ""}; got != want {
			t.Errorf("%s: got measured %v, want %v", text, got, want)
		}
	}
}

func TestReportOfAnotherLeader(t *testing.T) {
	r := &Result{
		Namespace: "bank", Leader: "http://8080/leader", Candidates: "app=web",
		Evidence: "It proves nothing.", Members: 3, Seed: 7,
	}
	r.Faults = []Fault{
		{Number: 1, Kind: Freeze, Elected: new(16500.0), Flaps: 1, TwoLeaders: new(3000.0)},
		{Number: 2, Kind: Freeze, Elected: new(16000.0), Settled: new(16100.0)},
		{Number: 3, Kind: Evict, Refused: "budget"},
	}
	r.Violations = []Violation{{Fault: 1, Kind: Freeze, Problem: Problem{OneLeader, "a < b"}}}
	r.Exceeded = []string{"budget exceeded: flaps > 0: got 1"}
	r.Summary = Summarize(r.Faults)
	var table, junit strings.Builder
	must.Succeed(t, r.WriteTable(&table))
	must.Succeed(t, r.WriteJUnit(&junit))
	const wantTable = `bank, http://8080/leader: 3 candidates with app=web; seed 7

FAULT   COUNT           ELECTED                SETTLED                FLAPS  TWO LEADERS
evict   0 (+1 refused)  -                      -                      0      -
freeze  2               16000 / 16500 / 16500  16100 / 16100 / 16100  1      1 of 2, 3000 ms or longer
Milliseconds from the fault: median / p99 / maximum. Flaps are changes of the leader after the first one.
It proves nothing.

2 faults: 1 violation of invariants
- fault 1 (freeze): one leader: a < b
`
	const wantJUnit = `<testsuite name="bank, http://8080/leader" tests="4" failures="2" skipped="1">
  <testcase classname="bank, http://8080/leader" name="fault 1: freeze">
    <failure message="one leader: a &lt; b"></failure>
  </testcase>
  <testcase classname="bank, http://8080/leader" name="fault 2: freeze" time="16.100"></testcase>
  <testcase classname="bank, http://8080/leader" name="fault 3: evict">
    <skipped message="budget"></skipped>
  </testcase>
  <testcase classname="bank, http://8080/leader" name="budget">
    <failure message="budget exceeded: flaps &gt; 0: got 1"></failure>
  </testcase>
</testsuite>
`
	expect.Equalf(t, table.String(), wantTable, "table")
	expect.Equalf(t, junit.String(), wantJUnit, "JUnit")
}

func TestScheduleDependsOnTheSeedAlone(t *testing.T) {
	first := Schedule(7, Kinds(), 100)
	expect.DeepEqualf(t, first, Schedule(7, Kinds(), 100), "schedule of the same seed")
	expect.DeepEqualf(t, first[:20], Schedule(7, Kinds(), 20), "beginning of a longer schedule")
	if other := Schedule(8, Kinds(), 100); reflect.DeepEqual(first, other) {
		t.Error("another seed must give another schedule")
	}
}

func TestScheduleHasEveryKindBeforeItRepeatsOne(t *testing.T) {
	for seed := range uint64(50) {
		steps := Schedule(seed, Kinds(), 2*len(kinds))
		for _, half := range [][]Step{steps[:len(kinds)], steps[len(kinds):]} {
			seen := map[string]bool{}
			for _, s := range half {
				seen[s.Kind.Name] = true
				if s.Jitter < 0 || s.Jitter >= maxJitter {
					t.Errorf("seed %d: got jitter %s, want less than %s", seed, s.Jitter, maxJitter)
				}
			}
			must.Equalf(t, len(seen), len(kinds), "seed %d: kinds", seed)
		}
	}
}

func TestParseKinds(t *testing.T) {
	found, err := ParseKinds([]string{Freeze, Pod})
	if err != nil || len(found) != 2 || found[0].Name != Freeze || found[1].Name != Pod {
		t.Errorf("got %v, %v, want freeze and pod", found, err)
	}
	for _, c := range []struct {
		names []string
		want  string
	}{
		{
			[]string{"rain"}, `unknown kind of fault "rain": choose some of pod, force-pod, two, all, rollout, evict, cordon, ` +
				`drain, manager, agent, app, freeze, node, partition, loss, delay, apiserver`,
		},
		{[]string{Pod, Pod}, "kind pod is named twice; name it once"},
	} {
		if _, err := ParseKinds(c.names); err == nil || err.Error() != c.want {
			t.Errorf("%v: got %v, want %s", c.names, err, c.want)
		}
	}
}
