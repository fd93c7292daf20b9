package transcript

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/journal"
	"github.com/conclave-dev/conclave/internal/diagram"
	"github.com/conclave-dev/conclave/internal/election"
	protocol "github.com/conclave-dev/conclave/internal/protocol/journal"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// epoch is the time of day when a simulation begins.
var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// simulated has the journals of simulated agents, as real ones record them.
type simulated struct {
	scenario sim.Scenario
	rings    []*journal.Ring // by ID
	outcome  sim.Outcome
}

func podName(id election.ID) string {
	if id == election.None {
		return ""
	}
	return fmt.Sprint("ledger-", id-1)
}

// simulate runs the election after the crash of the highest process.
func simulate(t *testing.T, algorithm string, processes int) *simulated {
	t.Helper()
	highest := election.ID(processes)
	s := &simulated{scenario: sim.Scenario{
		Algorithm: algorithm, Processes: processes, Safety: "Majority", Latency: sim.Millisecond,
		Crashed: []election.ID{highest}, Initiators: []election.ID{highest - 1},
	}}
	for range processes + 1 {
		s.rings = append(s.rings, new(journal.Ring))
	}
	for _, r := range s.rings[1:highest] { // They followed it before.
		before := []election.Event{{Kind: election.Recognized, Peer: highest, Term: 1}}
		r.Record(&election.Input{Kind: election.TimePassed}, nil, before, highest, 0)
	}
	s.scenario.Watch = func(step diagram.Step) {
		s.rings[step.Process].Record(&step.Input, step.Output.Send, step.Output.Events, election.None, 0)
	}
	outcome, err := sim.Run(s.scenario)
	must.Succeed(t, err)
	s.outcome = outcome
	return s
}

// journals returns the journals of the survivors. ahead returns by how much a clock is wrong.
func (s *simulated) journals(ahead func(election.ID) time.Duration) []protocol.Journal {
	var journals []protocol.Journal
	for id, r := range s.rings {
		self := election.ID(id)
		if self == election.None || id == s.scenario.Processes {
			continue
		}
		journals = append(journals, protocol.Journal{
			Group: "ledger", Agent: podName(self), Algorithm: s.scenario.Algorithm, Safety: "Majority", Members: s.members(),
			Steps: r.Steps(podName, func(uint8) string { return "" }, func(at election.Tick) time.Time {
				return epoch.Add(time.Duration(at/sim.Microsecond)*time.Microsecond + ahead(self))
			}),
		})
	}
	return journals
}

func (s *simulated) members() []protocol.Member {
	var members []protocol.Member
	for id := range s.scenario.Processes {
		members = append(members, protocol.Member{Name: podName(election.ID(id + 1)), Priority: uint32(10 * (id + 1))}) //nolint:gosec // small
	}
	return members
}

// wrongClocks are ahead or behind by up to 10 s.
func wrongClocks(seed uint64) func(election.ID) time.Duration {
	return func(id election.ID) time.Duration {
		rng := rand.New(rand.NewPCG(seed, uint64(id)))
		return time.Duration(rng.Int64N(int64(20*time.Second))) - 10*time.Second
	}
}
