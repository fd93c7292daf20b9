package office_test

import (
	"fmt"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// recovered is a group of five in which a process has restarted and runs the
// recovery of its algorithm. Messages arrive at once.
type recovered struct {
	*group

	process election.ID
	// counts has the messages of elections since the recovery began.
	counts map[election.Kind]int
	// tenures and resigned are the numbers of tenures, and of hand-overs of the coordinator, before the recovery.
	tenures, resigned int
	// claims counts the requests for grants while the former coordinator holds the office.
	claims int
}

type recovery struct {
	algorithm   string
	mode        office.Mode
	policy      office.Policy
	process     election.ID
	coordinator election.ID
	// crashed, if it isn't None, is down.
	crashed election.ID
	// withoutBeats drops the BEATs to the recovering process.
	withoutBeats bool
}

// recover starts a group that agrees on a coordinator, crashes a process, and
// restarts it without its memory. Then it gives it the input Recover.
func (r recovery) recover(t *testing.T) *recovered {
	t.Helper()
	algorithm, err := catalog.Find(r.algorithm)
	must.Succeed(t, err)
	roster := newRoster(t, 1, 1, 2, 3, 4, 5)
	g := newGroup(t, r.mode, r.coordinator, roster, func(c *office.Config) {
		c.NewElection, c.Policy = algorithm.New, r.policy
	})
	for _, id := range []election.ID{r.process, r.crashed} {
		if id != election.None {
			g.crash(id, true)
		}
	}
	g.advance(3 * heartbeat)
	got := &recovered{group: g, process: r.process, counts: map[election.Kind]int{}, tenures: len(
		g.tokens), resigned: g.countEvents(r.coordinator, election.OfficeResigned)}
	g.drop = func(m *election.Message) bool {
		if m.Kind.Counts() {
			got.counts[m.Kind]++
		}
		if m.Kind == election.Beat && !m.Hold.Held && g.machines[r.coordinator].Status().Token != 0 {
			got.claims++
		}
		return r.withoutBeats && m.Kind == election.Beat && m.To == r.process
	}
	g.start(r.process, roster, nil)
	g.input(r.process, election.Input{Kind: election.Recover})
	if r.crashed != election.None {
		g.advance(reply) // it doesn't answer
	}
	return got
}

func (r *recovered) wantCounts(want map[election.Kind]int) {
	r.t.Helper()
	expect.Equalf(r.t, fmt.Sprint(r.counts), fmt.Sprint(want), "process %d recovered: messages", r.process)
}

// wantRow checks a row of the recovered process's table.
func (r *recovered) wantRow(id election.ID, want election.ProcessStatus) {
	r.t.Helper()
	for _, row := range r.machines[r.process].Rows(nil) {
		if row.ID == id && row.Status != want {
			r.t.Errorf("at %d process %d: got %s in the row of %d, want %s", r.now, r.process, row.Status, id, want)
		}
	}
}

// The counts are those of the source texts: n+1 for the status table, m for the
// active list, and an election for the others.
func TestRecoveryCountsMessagesOfSources(t *testing.T) {
	type counts = map[election.Kind]int
	for _, c := range []struct {
		algorithm            string
		process, coordinator election.ID
		want                 counts
	}{
		{"Bully", 1, 5, counts{election.Election: 10, election.OK: 10, election.Coordinator: 4}},
		{"Bully", 4, 5, counts{election.Election: 1, election.OK: 1, election.Coordinator: 4}},
		{"StatusTable", 1, 5, counts{election.Request: 1, election.Table: 1, election.Update: 4}},
		{"StatusTable", 4, 5, counts{election.Request: 1, election.Table: 1, election.Update: 4}},
		{"RingAllIDs", 1, 5, counts{election.ElectMe: 25, election.NewCoordinator: 5}},
		{"RingChampion", 1, 5, counts{election.ElectMe: 9, election.NewCoordinator: 5}},
		{"RingActiveList", 1, 5, counts{election.Inquiry: 4, election.Reply: 1}},
		{"RingActiveList", 4, 5, counts{election.Inquiry: 1, election.Reply: 4}},
		{"RingSkip", 1, 5, counts{election.Election: 5, election.Coordinator: 5}},
		// The highest process of all. Its announcement doesn't make it coordinator.
		{"Bully", 5, 4, counts{election.Coordinator: 4}},
		{"StatusTable", 5, 4, counts{election.Request: 1, election.Table: 1, election.Update: 4}},
		{"RingAllIDs", 5, 4, counts{election.ElectMe: 25, election.NewCoordinator: 5}},
		{"RingChampion", 5, 4, counts{election.ElectMe: 5, election.NewCoordinator: 5}},
		{"RingActiveList", 5, 4, counts{election.Inquiry: 4, election.Reply: 1}},
		{"RingSkip", 5, 4, counts{election.Election: 5, election.Coordinator: 5}},
	} {
		for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
			t.Run(fmt.Sprintf("%s/%s/%d", c.algorithm, mode, c.process), func(t *testing.T) {
				r := recovery{
					algorithm: c.algorithm, mode: mode, policy: office.NeverPreempt, process: c.process, coordinator: c.coordinator,
				}.recover(t)
				r.advance(1) // no heartbeat passes
				r.wantCounts(c.want)
				r.wantFollowed(c.coordinator, c.process)
				r.advance(10 * lease)
				r.wantCounts(c.want)
				expect.Equalf(t, len(r.tokens), r.tenures, "tenures")
			})
		}
	}
}

// The answer to a REQUEST or an INQUIRY suffices to report the coordinator and, from a TABLE, who has crashed.
func TestRecoveryLearnsWithoutBeats(t *testing.T) {
	for _, algorithm := range []string{"StatusTable", "RingActiveList"} {
		for _, c := range []recovery{
			{process: 1, coordinator: 5, crashed: 3},
			{process: 5, coordinator: 2, crashed: 3},
		} {
			c.algorithm, c.mode, c.policy, c.withoutBeats = algorithm, office.Majority, office.NeverPreempt, true
			t.Run(fmt.Sprintf("%s/%d", algorithm, c.process), func(t *testing.T) {
				r := c.recover(t)
				r.wantFollowed(c.coordinator, c.process)
				expect.Equalf(t, r.machines[c.process].Status().Term, r.machines[c.coordinator].Status().Term,
					"term (of the tenure)")
				r.wantRow(c.coordinator, election.Coordinating)
				r.wantRow(4, election.Normal)
				if algorithm == "StatusTable" {
					r.wantRow(3, election.Crashed)
				}
			})
		}
	}
}

// A process of any rank recovers while any process coordinates. Nothing else changes,
// unless the policy lets a higher process take over. Then there is one hand-over, in
// which the application of the former coordinator stops before the next tenure.
func TestRecoveryDoesntDisturbCoordinator(t *testing.T) {
	for _, algorithm := range catalog.All() {
		for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
			for _, policy := range []office.Policy{office.Always, office.WhenStable, office.NeverPreempt} {
				t.Run(fmt.Sprintf("%s/%s/%d", algorithm.Name, mode, policy), func(t *testing.T) {
					for process := election.ID(1); process <= 5; process++ {
						checkUndisturbed(t,
							recovery{algorithm: algorithm.Name, mode: mode, policy: policy, process: process, coordinator: 5})
						checkUndisturbed(t,
							recovery{algorithm: algorithm.Name, mode: mode, policy: policy, process: process, coordinator: 4, crashed: 5})
					}
					checkUndisturbed(t, recovery{algorithm: algorithm.Name, mode: mode, policy: policy, process: 5, coordinator: 4})
					if policy == office.NeverPreempt { // a process that doesn't recover wins the election
						checkUndisturbed(t, recovery{algorithm: algorithm.Name, mode: mode, policy: policy, process: 1, coordinator: 3})
					}
				})
			}
		}
	}
}

func checkUndisturbed(t *testing.T, c recovery) {
	t.Helper()
	if c.process == c.coordinator || c.process == c.crashed {
		return
	}
	r := c.recover(t)
	if c.mode != office.Available { // there, the process is ready at once
		r.wantHolder(c.coordinator)
	}
	for range 2 * stablePeriod {
		r.advance(1)
		if len(r.holders()) == 0 {
			t.Fatalf("process %d recovered while %d was coordinator: at %d no process is", c.process, c.coordinator, r.now)
		}
	}
	handOvers, last := 0, c.coordinator
	if c.process > c.coordinator && c.policy != office.NeverPreempt {
		handOvers, last = 1, c.process
	}
	r.wantHolder(last)
	r.wantFollowed(last, c.process, c.coordinator)
	if got := r.countEvents(c.coordinator, election.OfficeResigned) - r.resigned; got != handOvers ||
		len(r.tokens)-r.tenures != handOvers {
		t.Errorf("process %d recovered while %d was coordinator: got %d hand-overs and %d tenures, want %d",
			c.process, c.coordinator, got, len(r.tokens)-r.tenures, handOvers)
	}
	expect.Equalf(t, r.claims, 0,
		"process %d recovered while %d was coordinator: competing claims", c.process, c.coordinator)
	expect.Equalf(t, r.countEvents(c.coordinator, election.TenureLost), 0,
		"process %d recovered while %d was coordinator: lost tenure", c.process, c.coordinator)
}

// The coordinator answers the announcement of a higher process with a BEAT at once, and not that of a lower one.
func TestCoordinatorAnswersAnnouncementOfHigherProcess(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newCandidate(t, mode, nil)
		for _, id := range []election.ID{1, 2, 5} {
			h.receive(id, election.Grant, term(20), election.Hold{Sent: h.now})
		}
		h.advance(heartbeat + 1)
		h.receive(2, election.Coordinator, term(21), election.Hold{})
		expect.Equalf(t, h.countSent(election.Beat), 0, "BEATs after the announcement of 2")
		h.receive(5, election.Coordinator, term(21), election.Hold{})
		expect.Equalf(t, h.countSent(election.Beat), 4, "BEATs after the announcement of 5")
	})
}
