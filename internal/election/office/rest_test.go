package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const witness election.ID = 3

// newWitnessed returns a group of two and a witness with the default settings, which process 2 leads for some time.
func newWitnessed(t *testing.T, algorithm string, heartbeats int, lease election.Tick) *group {
	t.Helper()
	g := newGroupOfSeconds(t, office.Majority)
	tune, elect := g.configure, electBy(t, algorithm)
	g.configure = func(c *office.Config) {
		tune(c)
		elect(c)
		c.UsualLease, c.Lease, c.CalmPeriod = lease, 4*lease, second
	}
	list, err := election.NewRoster(1, []election.Member{{ID: 1, Priority: 1}, {ID: 2, Priority: 2}, {ID: witness}})
	must.Succeed(t, err)
	g.startAgreed(2, list)
	g.advance(5*second + election.Tick(heartbeats)*second/10 + 5)
	g.wantHolder(2)
	g.events = nil
	return g
}

// eachRest runs a test at each heartbeat of the rest of a witness.
func eachRest(t *testing.T, test func(*testing.T, *group)) {
	for _, algorithm := range catalog.Names() {
		t.Run(algorithm, func(t *testing.T) {
			for heartbeats := range 10 {
				test(t, newWitnessed(t, algorithm, heartbeats, second/2))
			}
		})
	}
}

// TestWitnessRests while the other member renews: it gets an eighth of the BEATs, and nobody suspects it. In a lease of
// three heartbeats, too little time would be left to ask it after a missing renewal.
func TestWitnessRests(t *testing.T) {
	for lease, want := range map[election.Tick]int{second / 2: 10, 4 * second / 10: 10, 3 * second / 10: 80} {
		g, beats := newWitnessed(t, "Bully", 0, lease), map[election.ID]int{}
		g.drop = func(m *election.Message) bool { beats[m.To]++; return false }
		g.advance(80 * second / 10)
		expect.Equalf(t, beats[1], 80, "lease of %d: messages to the other member", lease)
		expect.Equalf(t, beats[witness], want, "lease of %d: messages to the witness", lease)
		expect.Equalf(t, len(g.events), 0, "lease of %d: events", lease)
		g.wantFollowed(2, 1, 2, witness)
	}
}

// TestWitnessIsAskedInTime: the other member falls silent, or its link to the coordinator breaks. The coordinator keeps
// its office with the vote of the witness, and no other process claims it.
func TestWitnessIsAskedInTime(t *testing.T) {
	for name, drop := range map[string]func(*election.Message) bool{
		"silent":   func(m *election.Message) bool { return m.From == 1 || m.To == 1 },
		"broken":   func(m *election.Message) bool { return m.To != witness && m.From != witness },
		"one way":  func(m *election.Message) bool { return m.From == 2 && m.To == 1 },
		"no grant": func(m *election.Message) bool { return m.From == 1 && m.To == 2 },
	} {
		t.Run(name, func(t *testing.T) {
			eachRest(t, func(t *testing.T, g *group) {
				g.drop = drop
				g.advance(3 * second)
				g.wantHolder(2)
				expect.Equalf(t, g.countEvents(2, election.TenureLost), 0, "lost tenures")
				expect.Equalf(t, len(g.tokens), 1, "tenures")
				g.wantFollowed(2, witness)
			})
		})
	}
}

// TestRestingWitnessDelaysNoFailover: when the coordinator falls silent, the other member leads as soon as it would if
// the witness got each BEAT: the lease ends, and the member has its vote.
func TestRestingWitnessDelaysNoFailover(t *testing.T) {
	eachRest(t, func(t *testing.T, g *group) {
		g.crash(2, false)
		expect.AtMostf(t, g.untilHolder(second), second/2+second/20, "time until the next tenure")
		g.advance(second / 5)
		g.wantFollowed(1, 1, witness)
	})
}

// TestSilentWitnessIsNoticed within a rest and a suspicion timeout. When it is back, it follows at once.
func TestSilentWitnessIsNoticed(t *testing.T) {
	eachRest(t, func(t *testing.T, g *group) {
		g.drop = func(m *election.Message) bool { return m.From == witness || m.To == witness }
		g.advance(8*second/10 + 2*second/5 + 1)
		expect.Equalf(t, g.machines[2].Suspects().Has(witness), true, "the coordinator suspects the witness")
		g.drop = nil
		g.advance(second / 10)
		g.wantFollowed(2, witness)
		expect.Equalf(t, g.machines[2].Suspects().Has(witness), false, "it still does")
		g.input(witness, election.Input{Kind: election.Suspect, Peer: 2}) // it doubts its coordinator for another reason
		g.advance(second / 10)
		g.wantFollowed(2, witness)
	})
}
