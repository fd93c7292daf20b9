package catalog_test

import (
	"math/rand/v2"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func run(t *testing.T, s sim.Scenario) sim.Outcome {
	t.Helper()
	s.Latency = latency
	o, err := sim.Run(s)
	must.Succeed(t, err)
	if !o.Agreed {
		t.Fatalf("%+v: got no agreement: %+v", s, o)
	}
	return o
}

// crash is the crash of the coordinator of n processes, which one process notices.
func crash(algorithm string, n int, noticed election.ID) sim.Scenario {
	return sim.Scenario{
		Algorithm: algorithm, Processes: n, Crashed: []election.ID{election.ID(n)}, Initiators: []election.ID{noticed},
	}
}

// [ImprovedBully], table 1, without "the fact of sending the COORDINATOR message", "which is common in both the cases".
// In the worst case the lowest process notices the crash.
func TestTable1(t *testing.T) {
	for n := 3; n <= 60; n++ {
		table := run(t, crash("StatusTable", n, 1))
		expect.Equalf(t, table.Total-table.Messages[election.Coordinator], 2,
			"n=%d: messages of the proposed algorithm", n)
		bully := run(t, crash("Bully", n, 1))
		// Each of the n-2 processes that hold an election asks all processes above it. All except the dead one answer.
		asked := (n-1)*n/2 - 1
		answered := (n - 2) * (n - 1) / 2
		expect.Equalf(t, bully.Total-bully.Messages[election.Coordinator], asked+answered,
			"n=%d: messages of the bully (which is O(n*n))", n)
		for _, o := range []sim.Outcome{table, bully} {
			expect.Equalf(t, o.Messages[election.Coordinator], n-2, "n=%d, %s: COORDINATOR", n, o.Algorithm)
		}
	}
}

// The closed form for process i of n that detects the crash of the coordinator, from docs/algorithms.
func TestBullyClosedForm(t *testing.T) {
	for n := 3; n <= 40; n++ {
		for i := 1; i < n; i++ {
			want := counts{
				election.Election: (n-i)*(n-i+1)/2 - 1, election.OK: (n - i - 1) * (n - i) / 2, election.Coordinator: n - 2,
			}
			o := run(t, crash("Bully", n, election.ID(i)))
			must.Equalf(t, counts(o.Messages).String(), want.String(), "n=%d, %d notices", n, i)
		}
	}
}

// [ImprovedBully], 5.1.2: in the best case both algorithms send only n-2 COORDINATOR.
func TestBestCase(t *testing.T) {
	for n := 3; n <= 60; n++ {
		for _, algorithm := range []string{"Bully", "StatusTable"} {
			o := run(t, crash(algorithm, n, election.ID(n-1)))
			if o.Total != n-2 || o.Messages[election.Coordinator] != n-2 {
				t.Errorf("n=%d, %s: got %v, want n-2 COORDINATOR", n, algorithm, counts(o.Messages))
			}
		}
	}
}

// [ImprovedBully], table 2 and 3, and the other algorithms' counts for a
// recovery while all others are alive, in any order of the ring.
func TestRecovery(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 16))
	for n := 2; n <= 40; n++ {
		for id := election.ID(1); int(id) <= n; id++ {
			s := testElection{n: n, initiators: []election.ID{id}}
			for _, i := range random.Perm(n) {
				s.ring = append(s.ring, election.ID(i+1))
			}
			for algorithm, want := range recoveries(s, id) {
				o := run(t, sim.Scenario{Algorithm: algorithm, Processes: n, Ring: s.ring, Recover: id})
				if got := counts(o.Messages); got.String() != want.String() || int(o.Coordinator) != n {
					t.Fatalf("ring %d, %d recovers, %s: got coordinator %d after %s, want %d after %s",
						s.ring, id, algorithm, o.Coordinator, got, n, want)
				}
			}
		}
	}
}

// recoveries are the counts for the recovery of process id.
func recoveries(s testElection, id election.ID) map[string]counts {
	n, leader := s.n, election.ID(s.n)
	bully := bullyCounts(s)
	table := counts{election.Request: 1, election.Table: 1, election.Update: n - 1}
	if id == leader {
		leader--
		table = counts{election.Request: 1, election.Table: 1, election.Coordinator: n - 1}
	}
	asks := s.hops(id, leader)
	active := counts{election.Inquiry: asks, election.Reply: n - asks}
	if id > leader {
		active[election.Elect] = n * n
	}
	champion := counts{election.ElectMe: s.hops(id, election.ID(n)) + n, election.NewCoordinator: n}
	return map[string]counts{
		"Bully": bully, "StatusTable": table, "RingActiveList": active, "RingChampion": champion,
		"RingAllIDs": {election.ElectMe: n * n, election.NewCoordinator: n},
		"RingSkip":   {election.Election: n, election.Coordinator: n},
	}
}

// The numbers in the source texts.
func TestCountsOfSourceTexts(t *testing.T) {
	all := func(algorithm string, n int, initiator election.ID) sim.Scenario {
		return sim.Scenario{Algorithm: algorithm, Processes: n, Initiators: []election.ID{initiator}}
	}
	for _, c := range []struct {
		source string
		sim.Scenario
		want int
	}{
		{"[ImprovedBully], 6.1: bully", crash("Bully", 10, 4), 43},
		{"[ImprovedBully], 6.1: 1 ELECTION + 1 OK + 8 COORDINATOR", crash("StatusTable", 10, 4), 10},
		{"[UNIMORE]: n-1 when the highest starts", all("Bully", 10, 10), 9},
		{"[UNIMORE]: n(n-1), and n-1 announcements, when the lowest starts", all("Bully", 10, 1), 99},
		{"[Textbook]: order of n*n", crash("RingAllIDs", 10, 4), 100},
		{"[Textbook]: 3n-1", all("RingChampion", 10, 1), 29},
		{"[UNIMORE]: always 2n", all("RingSkip", 10, 3), 20},
		{"[DistributedOS]: of order n*n", all("RingActiveList", 10, 3), 100},
	} {
		expect.Equalf(t, run(t, c.Scenario).Total, c.want, "%s: messages", c.source)
	}
}

func TestFind(t *testing.T) {
	for _, name := range catalog.Names() {
		if a, err := catalog.Find(name); err != nil || a.Name != name || a.New == nil {
			t.Errorf("%s: got %q, %v", name, a.Name, err)
		}
	}
	_, err := catalog.Find("Raft")
	const want = `unknown algorithm "Raft": choose one of ` +
		"Bully, StatusTable, RingAllIDs, RingChampion, RingActiveList, RingSkip"
	if err == nil || err.Error() != want {
		t.Errorf("unknown algorithm: got %v, want %s", err, want)
	}
}
