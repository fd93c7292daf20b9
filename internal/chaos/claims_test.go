package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// said returns a claim of a process, sent and received at these milliseconds.
func said(from string, sent, received int, leading bool) Claim {
	return Claim{From: Agent{from, "uid-" + from}, Sent: at(sent), Received: at(received), Leading: leading}
}

// parseClaims reads claims, as in "a 0-1, b 50-60 follows": b doesn't claim to lead.
func parseClaims(t *testing.T, text string) (claims []Claim) {
	t.Helper()
	for part := range strings.SplitSeq(text, ", ") {
		var from, follows string
		var sent, received int
		if n, err := fmt.Sscanf(part, "%s %d-%d %s", &from, &sent, &received, &follows); n >= 3 {
			claims = append(claims, said(from, sent, received, n == 3))
		} else if part != "" {
			t.Fatalf("%q: %v", part, err)
		}
	}
	return claims
}

func TestOverlapsAreReportedOnlyIfTheyAreCertain(t *testing.T) {
	for name, c := range map[string]struct{ claims, want string }{
		"nobody":                               {"", ""},
		"one after the other":                  {"a 0-1, a 100-101, b 102-103, b 200-201", ""},
		"at unknown instants":                  {"a 0-100, b 0-100", ""},
		"both before and after":                {"a 0-1, b 50-51, a 100-101, b 150-151", "49 in 51 to 101"},
		"an answer in between":                 {"a 0-1, b 50-60, a 100-101", "0 in 60 to 60"},
		"an answer that may be earlier":        {"a 10-11, b 5-60, a 100-101", ""},
		"it denies in between":                 {"a 0-1, a 20-21 follows, b 50-51, a 100-101", ""},
		"it denies, and leads again too early": {"a 0-1, a 20-21 follows, b 50-51, a 100-101, b 150-151", "0 in 101 to 101"},
		"late answers":                         {"a 0-600, b 605-606, a 610-1200", ""},
		"it was silent in between":             {"a 0-1, b 50-51, b 550-551, a 1000-1001", ""},
		"twice": {
			"a 0-1, b 50-51, a 100-101, b 150-151, b 700-701, a 800-801, b 900-901, a 1000-1001", "148 in 51 to 901",
		},
	} {
		expect.Equalf(t, formatOverlaps(parseClaims(t, c.claims)), c.want, "%s", name)
	}
}

// TestLeadersOfOneListOverlap: a list has a state at one instant, and names two leaders.
func TestLeadersOfOneListOverlap(t *testing.T) {
	first, second := said("a", 0, 9, true), said("b", 0, 9, true)
	first.Instant, second.Instant = 1, 1
	expect.Equalf(t, formatOverlaps([]Claim{first, second}), "0 in 9 to 9", "one list")
	second = said("b", 10, 19, true)
	second.Instant = 2
	expect.Equalf(t, formatOverlaps([]Claim{first, second}), "", "two lists")
}

func formatOverlaps(claims []Claim) string {
	var all []string
	for _, o := range Overlaps(claims) {
		from, until := o.From.Sub(start).Milliseconds(), o.Until.Sub(start).Milliseconds()
		all = append(all, fmt.Sprintf("%d in %d to %d", o.Total.Milliseconds(), from, until))
	}
	return strings.Join(all, ", ")
}

// election is a sound election, or one with two leaders: who leads is known at each millisecond.
type election struct {
	random *rand.Rand
	leads  [][]bool // by process and time
}

const processes, duration = 3, 20_000

// newElection returns tenures of random lengths with gaps. No process regains the lead sooner than the assumption
// permits.
func newElection(seed uint64) *election {
	e := &election{random: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // a schedule of a test
	lost := make([]int, processes)
	for i := range lost {
		lost[i] = -1000
		e.leads = append(e.leads, make([]bool, duration))
	}
	for now := 0; now < duration; {
		now += e.random.IntN(1 + e.random.IntN(300))
		p := e.random.IntN(processes)
		if now-lost[p] <= int(maxSilence/time.Millisecond) {
			now++
			continue
		}
		end := min(duration, now+1+e.random.IntN(1+e.random.IntN(3000)))
		for ; now < end; now++ {
			e.leads[p][now] = true
		}
		lost[p] = now
	}
	return e
}

// ask returns the answers to queries of each process, which take up to slowest milliseconds. Some are lost. The answer
// is what was true at some instant in between.
func (e *election) ask(slowest int) (claims []Claim) {
	for p := range processes {
		for now := 0; now < duration; {
			delay := 1 + e.random.IntN(1+e.random.IntN(slowest))
			there := now + e.random.IntN(delay)
			received := now + delay
			if received >= duration {
				break
			}
			if e.random.IntN(10) > 0 {
				claims = append(claims, said(string(rune('a'+p)), now, received, e.leads[p][there]))
			}
			now = received + e.random.IntN(100)
		}
	}
	slices.SortStableFunc(claims, func(a, b Claim) int { return a.Received.Compare(b.Received) })
	return claims
}

// A test that reports violations which aren't any would be ignored soon.
func TestSoundElectionsRaiseNoAlarm(t *testing.T) {
	for seed := range uint64(2000) {
		if overlaps := Overlaps(newElection(seed).ask(3000)); len(overlaps) > 0 {
			t.Fatalf("seed %d: got %s, want no overlap", seed, &overlaps[0])
		}
	}
}

// With answers that aren't too slow, two leaders for a second are found, and what is reported was true.
func TestTwoLeadersAreFound(t *testing.T) {
	found := 0
	const seeds = 300
	for seed := range uint64(seeds) {
		e := newElection(seed)
		from := 1000 + e.random.IntN(duration-3000)
		for now := from; now < from+1000; now++ {
			e.leads[0][now], e.leads[1][now] = true, true
		}
		overlaps := Overlaps(e.ask(100))
		if len(overlaps) > 0 {
			found++
		}
		for i := range overlaps {
			o := &overlaps[i]
			if o.From.Before(at(from-int(maxSilence/time.Millisecond))) ||
				o.Until.After(at(from+1000+int(maxSilence/time.Millisecond))) {
				t.Fatalf("seed %d: got %s, want it between %s and a second later", seed, o, clock(at(from)))
			}
		}
	}
	expect.AtLeastf(t, found, seeds*9/10, "pairs of leaders that were found")
}

func TestElectionsOfOtherLeadersAreMeasured(t *testing.T) {
	before := Agent{"a", "uid-a"}
	for name, c := range map[string]struct {
		claims         []Claim
		elected, flaps int // -1: none
	}{
		"another leads": {
			[]Claim{said("a", 50, 60, true), said("b", 110, 130, true), said("b", 200, 210, true)}, 30, 0,
		},
		"the same still leads": {[]Claim{said("a", 50, 60, true), said("a", 110, 130, true)}, -1, 0},
		"the same leads again": {[]Claim{said("a", 110, 111, false), said("a", 130, 140, true)}, 40, 0},
		"asked before":         {[]Claim{said("b", 90, 130, true), said("b", 131, 140, true)}, -1, 0},
		"it changes twice more": {[]Claim{said("b", 110, 111, true), said("b", 120, 121, false), said("c", 130, 131,
			true), said("c", 140, 141, false), said("b", 150, 151, true)}, 11, 2},
		"two at the same time": {[]Claim{said("a", 50, 60, true), said("b", 110, 111, true), said("a", 120, 121,
			true), said("b", 130, 131, true)}, 11, 0},
	} {
		r := &Record{ByClaims: true, Before: before, Fault: at(100), Claims: c.claims}
		got := Measure(r)
		var f Fault
		f.SetRecord(r)
		if c.elected < 0 != (got.Elected == nil) || got.Elected != nil && *got.Elected != time.Duration(c.elected)*
			time.Millisecond || f.Flaps != c.flaps || (got.Missing == "") != (got.Elected != nil) {
			t.Errorf("%s: got %v (%s), %d flaps, want %d, %d", name, got.Elected, got.Missing, f.Flaps, c.elected, c.flaps)
		}
	}
}

func TestChangesAreObserved(t *testing.T) {
	for name, c := range map[string]struct {
		claims []Claim
		want   string
	}{
		"none": {[]Claim{said("a", 110, 111, true), said("a", 150, 151, true)}, ""},
		"another leads": {[]Claim{said("a", 110, 111, true), said("a", 130, 131, false), said("b", 150, 152,
			true), said("b", 200, 201, true)}, "b 41 ms"},
		"the same leads again": {
			[]Claim{said("a", 110, 111, true), said("a", 130, 131, false), said("a", 150, 151, true)}, "a 40 ms",
		},
		"nobody led before": {[]Claim{said("b", 150, 151, true)}, "b 51 ms"},
		"two changes": {[]Claim{said("a", 110, 111, true), said("b", 150, 151, true), said("b", 160, 161,
			false), said("c", 190, 191, true)}, "b 40 ms; c 40 ms"},
		"two at the same time": {
			[]Claim{said("a", 110, 111, true), said("b", 120, 121, true), said("a", 130, 131, true), said("b",
				150, 151, true), said("b", 160, 161, false), said("a", 190, 191, false), said("c", 200, 201, true)},
			"b 10 ms, two for 9 ms; c 50 ms",
		},
	} {
		r := &Record{ByClaims: true, Before: Agent{"a", "uid-a"}, Fault: at(100), Claims: c.claims}
		var got []string
		changes, violations := r.ObservedChanges(false)
		for _, f := range changes {
			text := fmt.Sprintf("%s %.0f ms", f.Coordinator, *f.Elected)
			if f.TwoLeaders != nil {
				text += fmt.Sprintf(", two for %.0f ms", *f.TwoLeaders)
			}
			got = append(got, text)
		}
		expect.Equalf(t, strings.Join(got, "; "), c.want, "%s", name)
		// Two leaders and the violation belong to the same change, so the budget counts them once.
		budget, err := ParseBudget("two-leaders > 0")
		must.Succeed(t, err)
		result := &Result{Faults: changes, Violations: violations}
		want := ""
		if strings.Contains(c.want, "two for") {
			want = "two-leaders > 0: got 1"
		}
		expect.Equalf(t, budget.Exceeded(result), want, "%s", name)
	}
}
