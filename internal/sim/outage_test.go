package sim

import (
	"context"
	"math/bits"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// longestOutages has, for some faults, how long there may be no coordinator, in leases. Requests that are lost or late
// end a tenure, and a restarted process grants after a lease. So nothing is promised for faults of messages.
var longestOutages = []struct {
	faults, safety string
	// limits has the limits of p99 and of the longest outage for each kind.
	limits map[outageKind][2]float64
}{
	{"crash", "Available", map[outageKind][2]float64{
		outageCrash: {0.7, 1}, outageSilentCrash: {1, 1.1}, outageHandOver: {0.2, 0.3},
	}},
	{"crash", "Majority", map[outageKind][2]float64{
		outageCrash: {0.9, 1.2}, outageSilentCrash: {1.1, 1.3}, outageHandOver: {0.2, 0.6}, outageRestart: {1.3, 1.8},
	}},
	{"crash", "Strict", map[outageKind][2]float64{
		outageCrash: {1.2, 1.3}, outageSilentCrash: {1.2, 1.3}, outageHandOver: {0.2, 0.6}, outageRestart: {1.3, 1.8},
	}},
	{"appdead,stepdown", "Majority", map[outageKind][2]float64{
		outageApplication: {0.3, 1.1}, outageStepDown: {0.3, 1.1}, outageHandOver: {0.2, 0.6},
	}},
	{"pause", "Majority", map[outageKind][2]float64{outagePause: {1.2, 1.4}}},
	{"burst", "Majority", map[outageKind][2]float64{
		outageCrash: {1.2, 1.8}, outageLateProof: {1.2, 1.8}, outageSilentCrash: {1.2, 1.8}, outageHandOver: {0.7, 1.2},
	}},
	{"partition", "Majority", map[outageKind][2]float64{outagePartition: {1, 1.3}}},
}

// Without faults of messages, the time without a coordinator after a fault is limited.
func TestOutagesAreShort(t *testing.T) {
	for _, c := range longestOutages {
		t.Run(c.faults+"/"+c.safety, func(t *testing.T) {
			t.Parallel()
			n := 4000
			if testing.Short() {
				n = 1200
			}
			if strings.Contains(c.faults, "burst") {
				n /= 15 // each takes as long as a hundred others
			}
			report, err := Sample(context.Background(), Sampling{
				Algorithm: "StatusTable", Processes: 5, Safety: c.safety,
				Faults: strings.Split(c.faults, ","), Schedules: n, Seed: 1,
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
				t.Logf("%s: %d times, p50 %.2f, p99 %.2f, max %.2f leases", outageNames[kind], o.Count, InLeases(o.P50),
					InLeases(o.P99), InLeases(o.Max))
				switch {
				case o.Count < 5:
					t.Errorf("got %d outages of the kind %q, want more", o.Count, outageNames[kind])
				case InLeases(o.P99) > limit[0] || InLeases(o.Max) > limit[1]:
					t.Errorf("%s: got p99 %.2f and max %.2f leases, want at most %.2f and %.2f", o.Kind, InLeases(o.P99),
						InLeases(o.Max), limit[0], limit[1])
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
	if p50, p99, longest := all.quantile(50), all.quantile(99), all.longest; all.total != 201 || p50 != 101 ||
		p99 != 199 || longest != countedDurations+7 {
		t.Errorf("got %d durations, p50 %d, p99 %d, max %d, want 201, 101, 199, %d", all.total, p50, p99,
			longest, countedDurations+7)
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

// TestFewFaults: half of the schedules may have all faults, and the others at most nine.
func TestFewFaults(t *testing.T) {
	const given = allFaults | Late | Latency | Redial
	s := &simulation{settings: settings{faults: given | Few}}
	few, possible := 0, Few
	for seed := range uint64(1000) {
		got := s.possibleFaults(seed)
		if got == given {
			continue
		}
		few, possible = few+1, possible|got
		if n := bits.OnesCount64(uint64(got &^ Few)); got&Few == 0 || got&^Few&^given != 0 || n > 9 {
			t.Fatalf("seed %d: got the faults %s", seed, got.names())
		}
	}
	if few < 400 || few > 600 {
		t.Errorf("got %d of 1000 schedules with few faults, want about half", few)
	}
	if possible != given|Few {
		t.Errorf("got schedules with the faults %s, want each one in some", possible.names())
	}
}

// maxMessagesOfFive is the most messages that the formulas allow when the highest of five processes crashes. In the
// bully algorithms, the highest live process starts first, which is the best case. A message takes longer to pass round
// the ring than the other processes wait, so each of the four may start an election on the ring.
var maxMessagesOfFive = map[string]int{
	"Bully": 3, "StatusTable": 3, "RingAllIDs": 4 * 25, "RingChampion": 4 * 14,
	"RingActiveList": 4 * 16, "RingSkip": 4 * 8,
}

// With offices, too, the crash of the coordinator costs no more messages than the formulas allow, and nothing else
// costs any. Strict mode is excluded: there, elections may be repeated until the lease has expired.
func TestOfficeElectsWithinCounts(t *testing.T) {
	for _, algorithm := range catalog.All() {
		for _, mode := range []office.Mode{office.Available, office.Majority} {
			t.Run(algorithm.Name+"/"+mode.String(), func(t *testing.T) {
				s, err := newSimulation(settings{algorithm: algorithm, mode: mode, size: 5})
				must.Succeed(t, err)
				for seed := range uint64(200) {
					if n := s.countElection(t, seed); n < 3 || n > maxMessagesOfFive[algorithm.Name] {
						t.Fatalf("seed %d: got %d messages of the election, want 3 to %d", seed, n, maxMessagesOfFive[algorithm.Name])
					}
				}
			})
		}
	}
}

// countElection crashes the coordinator, notifies all other processes in time, and
// counts the messages of the election that follows.
func (s *simulation) countElection(t *testing.T, seed uint64) (counted int) {
	t.Helper()
	s.watch = func(step transcript.Step) {
		if step.Output == nil {
			return
		}
		for i := range step.Output.Send {
			if step.Output.Send[i].Kind.Counts() {
				counted++
			}
		}
	}
	s.start(seed)
	const at = 4 * lease
	s.schedule.push(s, action{at: at, kind: actCrash, target: 5, silent: true})
	for id := election.ID(1); id < 5; id++ {
		noticedAt := at + election.Tick(s.rng.between(1, int(transMax)))
		s.queue.push(event{at: noticedAt, kind: eventPeerEnded, process: id, peer: 5, slot: 1})
	}
	s.runUntil(at - 1)
	must.Equalf(t, counted, 0, "seed %d: messages before the crash", seed)
	s.runUntil(at + convergeWithin)
	if v, disagreement := s.checker.violation, s.disagreement(); v != nil || disagreement != "" {
		t.Fatalf("seed %d: got violation %v and disagreement %q, want none", seed, v, disagreement)
	}
	return counted
}

// runUntil handles all events that are due by a given time.
func (s *simulation) runUntil(then election.Tick) {
	for s.queue.now < then {
		e, more := s.queue.pop()
		if !more {
			return
		}
		s.handle(e)
	}
}
