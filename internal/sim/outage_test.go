package sim

import (
	"context"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// longestOutages has, for some faults, how long there may be no coordinator, in leases. Requests that are lost or late
// end a tenure, and a restarted process grants after a lease. So nothing is promised for faults of messages.
var longestOutages = []struct {
	faults, safety string
	// limits has the limits of p99 and of the longest outage for each kind.
	limits map[outageKind][2]float64
}{
	{"crash", "Available", map[outageKind][2]float64{outageCrash: {0.7, 1}, outageSilentCrash: {1, 1.1}, outageHandOver: {0.2, 0.3}}},
	{"crash", "Majority", map[outageKind][2]float64{outageCrash: {0.9, 1.2}, outageSilentCrash: {1.1, 1.3}, outageHandOver: {0.2, 0.6}, outageRestart: {1.3, 1.8}}},
	{"crash", "Strict", map[outageKind][2]float64{outageCrash: {1.2, 1.3}, outageSilentCrash: {1.2, 1.3}, outageHandOver: {0.2, 0.6}, outageRestart: {1.3, 1.8}}},
	{"appdead,stepdown", "Majority", map[outageKind][2]float64{outageApplication: {0.3, 1.1}, outageStepDown: {0.3, 1.1}, outageHandOver: {0.2, 0.6}}},
	{"pause", "Majority", map[outageKind][2]float64{outagePause: {1.2, 1.4}}},
	{"skew,operator,burst", "Majority", map[outageKind][2]float64{outageCrash: {1.2, 1.8}, outageLateProof: {1.2, 1.8}, outageSilentCrash: {1.2, 1.8}, outageHandOver: {0.7, 1.2}}},
	{"partition", "Majority", map[outageKind][2]float64{outagePartition: {2.5, 4}}},
}

// Without faults of messages, the time without a coordinator after a fault is limited.
func TestOutagesAreShort(t *testing.T) {
	for _, c := range longestOutages {
		t.Run(c.faults+"/"+c.safety, func(t *testing.T) {
			t.Parallel()
			n := 4000
			if testing.Short() {
				n = 600
			}
			if strings.Contains(c.faults, "burst") {
				n /= 15 // each takes as long as a hundred others
			}
			report, err := Sample(context.Background(), Sampling{
				Algorithm: "StatusTable", Processes: 5, Safety: c.safety, Faults: strings.Split(c.faults, ","), Schedules: n, Seed: 1,
			})
			if err != nil || report.Violated > 0 {
				t.Fatal(err, report.Violations)
			}
			measured := map[string]Outage{}
			for _, o := range report.Outages {
				measured[o.Kind] = o
			}
			for kind, limit := range c.limits {
				o := measured[outageNames[kind]]
				t.Logf("%s: %d times, p50 %.2f, p99 %.2f, max %.2f leases", outageNames[kind], o.Count, InLeases(o.P50), InLeases(o.P99), InLeases(o.Max))
				switch {
				case o.Count < 5:
					t.Errorf("got %d outages of the kind %q, want more", o.Count, outageNames[kind])
				case InLeases(o.P99) > limit[0] || InLeases(o.Max) > limit[1]:
					t.Errorf("%s: got p99 %.2f and max %.2f leases, want at most %.2f and %.2f", o.Kind, InLeases(o.P99), InLeases(o.Max), limit[0], limit[1])
				}
			}
		})
	}
}

func TestQuantiles(t *testing.T) {
	var all, part durations
	for length := election.Tick(1); length <= 200; length++ {
		part.add(length)
		if length%50 == 0 {
			all.merge(&part)
		}
	}
	all.add(countedDurations + 7)
	if p50, p99, longest := all.quantile(50), all.quantile(99), all.longest; all.total != 201 || p50 != 101 || p99 != 199 || longest != countedDurations+7 {
		t.Errorf("got %d durations, p50 %d, p99 %d, max %d, want 201, 101, 199, %d", all.total, p50, p99, longest, countedDurations+7)
	}
}

// Three tenures begin within a minute, but not four.
func TestTenuresAreCounted(t *testing.T) {
	s := &simulation{settings: settings{mode: office.Majority}}
	s.checker.agreed = true
	for range maxPerMinute {
		s.countTenure()
	}
	if v := s.checker.violation; v != nil {
		t.Errorf("got %v after %d tenures, want no violation", v, maxPerMinute)
	}
	if s.countTenure(); s.checker.violation == nil || s.checker.violation.Invariant != "flapping" {
		t.Errorf("got %v after %d tenures, want flapping", s.checker.violation, maxPerMinute+1)
	}
}

func TestMessagesWithoutTailDontStall(t *testing.T) {
	s := &simulation{}
	s.schedule.extended, s.schedule.latency = true, lease/2
	if s.schedule.tail.draw(s); s.checker.stalls != 0 {
		t.Errorf("got %d late messages without a tail, want none", s.checker.stalls)
	}
}
