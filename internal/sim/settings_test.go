package sim_test

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// Groups whose settings change have grants for another lease than the requested one.
func TestChangingSettingsMixLeases(t *testing.T) {
	requested, shorter, equal := map[election.ID]election.Tick{}, 0, 0
	sample(t, sim.Sampling{
		Algorithm: "StatusTable", Processes: 5, Safety: "Majority", Faults: []string{"settings"}, Schedules: 200, Seed: 1,
		Watch: func(s transcript.Step) {
			if s.Fault != "" {
				return
			}
			for _, m := range s.Output.Send {
				switch {
				case m.Kind == election.Beat:
					requested[m.From] = m.Hold.Lease
				case m.Kind == election.Grant && m.Hold.Lease < requested[m.To]:
					shorter++
				case m.Kind == election.Grant:
					equal++
				}
			}
		},
	})
	if shorter < 100 || equal < 100 {
		t.Errorf("got %d grants for a shorter lease than requested and %d for the requested one, want 100 of each",
			shorter, equal)
	}
}

// Groups whose leases grow request many leases, shorter and longer ones in turn.
func TestGrowingSchedulesChangeLeases(t *testing.T) {
	var shorter, longer, last [31]election.Tick
	seen := map[election.Tick]bool{}
	sample(t, sim.Sampling{
		Algorithm: "StatusTable", Processes: 5, Safety: "Majority",
		Faults: strings.Split("delay,partition,grow", ","), Schedules: 400, Seed: 1,
		Watch: func(s transcript.Step) {
			if s.Fault != "" {
				return
			}
			for _, m := range s.Output.Send {
				if m.Kind != election.Beat || !m.Hold.Held {
					continue
				}
				is, was := m.Hold.Lease, last[m.From]
				if is == 0 {
					is = 1 << 20
				}
				seen[is], last[m.From] = true, is
				if is < was {
					shorter[m.From]++
				} else if is > was && was > 0 {
					longer[m.From]++
				}
			}
		},
	})
	down, up := election.Tick(0), election.Tick(0)
	for id := range last {
		down, up = down+shorter[id], up+longer[id]
	}
	if len(seen) < 4 || down < 100 || up < 100 {
		t.Errorf("got %d different leases, %d times a shorter one and %d times a longer one, want at least 4, 100 and 100",
			len(seen), down, up)
	}
}

// Faults that don't end, long drains, bursts of lists, groups whose members differ, and leases that grow or that users
// change, each with those faults that make it show. With skew, clocks differ by up to the maximum that agents accept,
// so that members whose clocks are behind grant late.
var extraFaults = []struct {
	faults    string
	schedules int
}{
	{"crash,lossy", 40},
	{"latency", 40},
	{"tail", 40},
	{"crash,members,tail", 40},
	{"throttle", 40},
	{"failing", 40},
	{"crash,members,appdead,stepdown,drains", 300},
	{"crash,members,operator,disk-lost", 1000},
	{"burst", 50},
	{"operator,burst,pods", 50},
	{"crash,members,pods,disk-lost", 1000},
	{"crash,appdead,partition,mixed", 1000},
	{"crash,partition,rejoin", 1000},
	{"crash,partition,redial", 1000},
	{"crash,partition,delay,disk,disk-lost", 2000},
	{"all,grow", 6000},
	{"all,settings", 6000},
	{"soak", 3000},
}

func TestSchedulesWithConfigurationFaults(t *testing.T) {
	for _, x := range extraFaults {
		t.Run(x.faults, func(t *testing.T) {
			t.Parallel()
			for _, mode := range modes {
				t.Run(mode, func(t *testing.T) {
					t.Parallel()
					sample(t, sim.Sampling{
						Algorithm: "StatusTable", Processes: 5, Safety: mode, Faults: strings.Split(x.faults, ","),
						Schedules: schedules(x.schedules), Seed: 1,
					})
				})
			}
		})
	}
}
