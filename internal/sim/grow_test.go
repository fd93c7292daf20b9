package sim_test

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/diagram"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/sim"
)

// Groups whose leases grow request many leases, shorter and longer ones in turn.
func TestGrowingSchedulesChangeLeases(t *testing.T) {
	var shorter, longer, last [31]election.Tick
	seen := map[election.Tick]bool{}
	sample(t, sim.Sampling{
		Algorithm: "StatusTable", Processes: 5, Safety: "Majority", Faults: strings.Split("delay,partition,grow", ","), Schedules: 400, Seed: 1,
		Watch: func(s diagram.Step) {
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
		t.Errorf("got %d different leases, %d times a shorter one and %d times a longer one, want at least 4, 100 and 100", len(seen), down, up)
	}
}

const growCheck = "^TestSchedulesWithConfigurationFaults$/^all,grow$"

// growMutants break the rules of leases that grow.
var growMutants = []mutant{
	{
		description: "a grant for a shorter lease shortens an earlier promise", file: "election/grants/ledger.go",
		old: "l.until = max(l.until, now+cmp.Or(r.Lease, l.lease))", new: "l.until = now + cmp.Or(r.Lease, l.lease)",
		check: seedCheck, wantOutput: "one holder",
	},
	{
		description: "the holder counts a longer lease than it requested", file: "election/grants/support.go",
		old: "lease = cmp.Or(lease, s.lease)", new: "lease = cmp.Or(s.lease, lease)",
		check: growCheck, wantOutput: "one holder",
	},
	{
		description: "an answer doesn't name the lease of its grant", file: "election/office/grant.go",
		old: "Ready: m.ready(), Lease: r.Lease,", new: "Ready: m.ready(),",
		check: growCheck, wantOutput: "one holder",
	},
	{
		description: "followers don't adopt the interval that the coordinator announces", file: "election/office/follow.go",
		old: "m.followPace(msg.Hold.Heartbeat)", new: "m.followPace(msg.Hold.Lease)",
		check: "^TestFollowersAdopt", pkg: "election/office", wantOutput: "FAIL",
	},
	{
		description: "a late BEAT announces its interval", file: "election/office/follow.go",
		old: "if !m.lastBeat.precedes(msg) {", new: "if false {",
		check: "^TestLateBeatAnnouncesNothing$", pkg: "election/office", wantOutput: "after a late BEAT",
	},
	{
		description: "late renewals don't make the lease longer", file: "election/office/pace.go",
		old: "m.pace = max(m.pace, m.paceForLease(leasePerAge*age))", new: "_ = age",
		check: "^TestOverloadedGroupKeepsCoordinator$", pkg: "election/office", wantOutput: "want at most one",
	},
	{
		description: "a lapse doesn't make the next lease longer", file: "election/office/pace.go",
		old: "next *= 2", new: "next *= 1",
		check: "^TestLateCoordinatorMakesNextLeaseLonger$", pkg: "election/office", wantOutput: "it_was_late",
	},
}
