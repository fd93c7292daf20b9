package sim_test

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/sim"
)

// Faults that don't end, long drains, bursts of lists, groups whose members differ, and leases that grow or that users
// change, each with those faults that make it show. With skew, clocks differ by up to the maximum that agents accept, so
// that members whose clocks are behind grant late.
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
	{"crash,members,operator", 1000},
	{"burst", 50},
	{"skew,operator,burst", 50},
	{"crash,members,pods", 1000},
	{"crash,appdead,partition,mixed", 1000},
	{"crash,partition,rejoin", 1000},
	{"crash,partition,redial", 1000},
	{"crash,partition,delay,jump,skew", 2000},
	{"all,grow", 6000},
	{"all,settings", 6000},
	{soakFaults + ",few", 3000},
}

func TestSchedulesWithConfigurationFaults(t *testing.T) {
	for _, x := range extraFaults {
		t.Run(x.faults, func(t *testing.T) {
			t.Parallel()
			for _, mode := range modes {
				t.Run(mode, func(t *testing.T) {
					t.Parallel()
					sample(t, sim.Sampling{
						Algorithm: "StatusTable", Processes: 5, Safety: mode, Faults: strings.Split(x.faults, ","), Schedules: schedules(x.schedules), Seed: 1,
					})
				})
			}
		})
	}
}
