package sim_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/diagram"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/sim"
)

// Groups whose settings change have grants for another lease than the requested one.
func TestChangingSettingsMixLeases(t *testing.T) {
	requested, shorter, equal := map[election.ID]election.Tick{}, 0, 0
	sample(t, sim.Sampling{
		Algorithm: "StatusTable", Processes: 5, Safety: "Majority", Faults: []string{"settings"}, Schedules: 200, Seed: 1,
		Watch: func(s diagram.Step) {
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
		t.Errorf("got %d grants for a shorter lease than requested and %d for the requested one, want 100 of each", shorter, equal)
	}
}

const settingsCheck = "^TestSchedulesWithConfigurationFaults$/^all,settings$"

// settingsMutants break the rules for settings that change while processes run.
var settingsMutants = []mutant{
	{
		description: "a member grants for a longer lease than its own", file: "election/office/settings.go",
		old: "return min(cmp.Or(requested, m.cfg.Lease), m.cfg.Lease)", new: "return cmp.Or(requested, m.cfg.Lease)",
		check: settingsCheck, wantOutput: "one holder",
	},
	{
		description: "a deferred request is granted for the lease at the time of the request", file: "election/office/grant.go",
		old: "r.Lease = m.commonLease(r.Lease)", new: "r.Lease += 0",
		check: "^TestDeferredRequestIsGrantedForLeaseInForce", pkg: "election/office", wantOutput: "FAIL",
	},
	{
		description: "a member with another lease grants nothing", file: "election/office/receive.go",
		old: "timing := msg.Hold.Lease < 0 ||", new: "timing := msg.Hold.Lease < 0 || msg.Hold.Lease > m.cfg.Lease ||",
		check: "^TestNoElectionWithoutFaults$", wantOutput: "election",
	},
	{
		description: "the heartbeats of a holder don't follow shorter grants", file: "election/office/settings.go",
		old: "m.request.granted >= wanted", new: "m.request.granted >= 0",
		check: "^TestHeartbeatsFollowShorterGrants", pkg: "election/office", wantOutput: "FAIL",
	},
	{
		description: "followers suspect a coordinator whose heartbeats are longer than theirs", file: "election/office/pace.go",
		old: "if announced > m.cfg.Heartbeat {", new: "if announced > m.cfg.Lease {",
		check: seedCheck, wantOutput: "convergence",
	},
}
