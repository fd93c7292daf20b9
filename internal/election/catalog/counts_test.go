package catalog_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// latency is Ttrans of every scenario here. Handling takes no time.
const latency = sim.Millisecond

// counts are numbers of messages by kind, in the order of election.Kinds.
type counts map[election.Kind]int

func (c counts) String() string {
	var s string
	for _, k := range election.Kinds() {
		if c[k] > 0 {
			s += fmt.Sprintf("%d %s ", c[k], k)
		}
	}
	return s
}

// testElection is one election: the number of processes, those that are down, the initiators, and the order of the
// ring. The priorities are the processes' numbers.
type testElection struct {
	n          int
	ring       []election.ID
	crashed    []election.ID
	initiators []election.ID
}

func (s testElection) scenario(algorithm string) sim.Scenario {
	return sim.Scenario{
		Algorithm: algorithm, Processes: s.n, Ring: s.ring, Crashed: s.crashed, Initiators: s.initiators, Latency: latency,
	}
}

func (s testElection) alive(id election.ID) bool { return !slices.Contains(s.crashed, id) }

func (s testElection) live() int { return s.n - len(s.crashed) }

func (s testElection) highest() election.ID {
	id := election.ID(s.n)
	for !s.alive(id) {
		id--
	}
	return id
}

// hops is the distance along the ring from one process to another, over all places.
func (s testElection) hops(from, to election.ID) int {
	a, b := slices.Index(s.ring, from), slices.Index(s.ring, to)
	return (b - a + s.n) % s.n
}

// draw returns a random election of up to 60 processes, some of which are down, with any order of the ring.
func draw(random *rand.Rand, initiators int, coordinatorDown bool) testElection {
	s := testElection{n: 1 + random.IntN(60)}
	for _, i := range random.Perm(s.n) {
		s.ring = append(s.ring, election.ID(i+1))
	}
	down := random.IntN(s.n)
	for _, i := range random.Perm(s.n)[:down] {
		s.crashed = append(s.crashed, election.ID(i+1))
	}
	if n := election.ID(s.n); coordinatorDown && s.alive(n) {
		s.crashed = append(s.crashed, n)
	}
	for len(s.crashed) >= s.n {
		s.crashed = s.crashed[1:]
	}
	for _, i := range random.Perm(s.n) {
		if id := election.ID(i + 1); s.alive(id) && len(s.initiators) < initiators {
			s.initiators = append(s.initiators, id)
		}
	}
	return s
}

// bullyCounts counts the messages without running the machine. Every live process from the lowest initiator on sends
// ELECTION to all processes above it, except for a process that has only the crashed coordinator above it. Each live
// process answers each live process below it that sent ELECTION. The highest one sends COORDINATOR to all processes
// below it.
func bullyCounts(s testElection) counts {
	c, lowest := counts{}, slices.Min(s.initiators)
	for p := lowest; int(p) <= s.n; p++ {
		announcesAtOnce := int(p) == s.n || int(p) == s.n-1 && !s.alive(election.ID(s.n))
		if !s.alive(p) || announcesAtOnce {
			continue
		}
		for q := p + 1; int(q) <= s.n; q++ {
			c[election.Election]++
			if s.alive(q) {
				c[election.OK]++
			}
		}
	}
	c[election.Coordinator] = int(s.highest()) - 1
	return c
}

// formulas are the counts in docs/algorithms, for one initiator and, except for RingChampion, for several at once.
var formulas = map[string]func(testElection) counts{
	"Bully": bullyCounts,
	"StatusTable": func(s testElection) counts {
		// The initiator tries the processes from n-1 down to the highest live one, which
		// answers. If the coordinator is up, it tries only the coordinator.
		high, c := int(s.highest()), counts{}
		asked := min(high, s.n-1)
		for _, p := range s.initiators {
			switch {
			case high == s.n && int(p) != high:
				c[election.Election]++
			case int(p) != high:
				c[election.Election] += s.n - asked
			default:
				c[election.Election] += s.n - 1 - asked
			}
			if int(p) != high {
				c[election.OK]++
			}
		}
		c[election.Coordinator] = high - 1
		return c
	},
	"RingAllIDs": func(s testElection) counts {
		return counts{election.ElectMe: s.live() * s.n, election.NewCoordinator: s.n * len(s.initiators)}
	},
	"RingChampion": func(s testElection) counts {
		d := s.hops(s.initiators[0], s.highest())
		return counts{election.ElectMe: d + s.n, election.NewCoordinator: s.n}
	},
	"RingActiveList": func(s testElection) counts { return counts{election.Elect: s.live() * s.live()} },
	"RingSkip": func(s testElection) counts {
		each := s.live() * len(s.initiators)
		return counts{election.Election: each, election.Coordinator: each}
	},
}

func TestCountsMatchFormulas(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		t.Run(algorithm, func(t *testing.T) {
			random := rand.New(rand.NewPCG(4, 2))
			for i := range 300 {
				s := draw(random, 1, i%4 != 0)
				check(t, algorithm, s)
			}
		})
	}
}

func TestCountsWithSeveralInitiators(t *testing.T) {
	for _, algorithm := range []string{"RingAllIDs", "RingActiveList", "RingSkip"} {
		t.Run(algorithm, func(t *testing.T) {
			random := rand.New(rand.NewPCG(8, 15))
			for range 200 {
				check(t, algorithm, draw(random, 2+random.IntN(60), true))
			}
		})
	}
}

// check runs the election and compares its counts with the formula.
func check(t *testing.T, algorithm string, s testElection) sim.Outcome {
	t.Helper()
	o, err := sim.Run(s.scenario(algorithm))
	must.Succeedf(t, err, "%+v", s)
	if want := s.highest(); !o.Agreed || o.Coordinator != want {
		t.Fatalf("%+v:\ngot coordinator %d (agreed: %v), want %d", s, o.Coordinator, o.Agreed, want)
	}
	want := formulas[algorithm](s)
	if got := counts(o.Messages); got.String() != want.String() {
		t.Fatalf("%+v:\ngot %s, want %s", s, got, want)
	}
	return o
}

// The same without a ring. The bully costs as much as with the lowest initiator alone. With a status table each
// initiator sends its own ELECTION, and the highest process announces itself once. The order in which the initiators
// are listed makes no difference.
func TestCountsWithSeveralInitiatorsWithoutRing(t *testing.T) {
	for _, algorithm := range []string{"Bully", "StatusTable"} {
		random := rand.New(rand.NewPCG(16, 23))
		several := 0
		for range 200 {
			s := draw(random, 2+random.IntN(60), true)
			if high := s.highest(); !slices.Contains(s.initiators, high) {
				s.initiators = append([]election.ID{high}, s.initiators...)
			}
			if len(s.initiators) > 1 {
				check(t, algorithm, s)
				several++
			}
		}
		if several < 100 {
			t.Fatalf("%s: got %d elections with several initiators, want at least 100", algorithm, several)
		}
	}
}

// [Textbook]: "the number of messages per election can be a maximum of 3n - 1", and the time "could be as high as (3n -
// 1)" worst-case delays. Both are reached if the initiator is right after the highest process.
func TestRingChampionWorstCase(t *testing.T) {
	for n := 3; n <= 60; n++ {
		s := testElection{n: n, initiators: []election.ID{1}, crashed: []election.ID{election.ID(n)}}
		s.ring = []election.ID{1, election.ID(n)}
		for id := 2; id < n; id++ {
			s.ring = append(s.ring, election.ID(id))
		}
		o := check(t, "RingChampion", s)
		expect.Equalf(t, o.Total, 3*n-1, "n=%d: messages", n)
		// The return of the announcement has no effect: one hop less.
		expect.Equalf(t, o.Elapsed, election.Tick(3*n-2)*latency, "n=%d: duration", n)
	}
}

// With any number of initiators one process is elected. Each initiator's
// message goes at most from the initiator to the champion.
func TestRingChampionWithSeveralInitiators(t *testing.T) {
	random := rand.New(rand.NewPCG(42, 108))
	for range 200 {
		s := draw(random, 2+random.IntN(60), true)
		o, err := sim.Run(s.scenario("RingChampion"))
		if err != nil || !o.Agreed || o.Coordinator != s.highest() {
			t.Fatalf("%+v: got error %v, coordinator %d", s, err, o.Coordinator)
		}
		most := s.n
		for _, p := range s.initiators {
			most += s.hops(p, s.highest())
		}
		if got := o.Messages[election.ElectMe]; got < s.n || got > most {
			t.Fatalf("%+v: got %d ELECT_ME, want %d to %d", s, got, s.n, most)
		}
		must.Equalf(t, o.Messages[election.NewCoordinator], s.n, "%+v: NEW_COORDINATOR", s)
	}
}

// Each process found dead on the way down adds one ELECTION and one T ([ImprovedBully], 4.2).
func TestStatusTableTriesProcessesInOrder(t *testing.T) {
	const n = 20
	reply := election.DefaultTiming(latency, 0).Reply
	for dead := 1; dead < n-1; dead++ {
		s := testElection{n: n, initiators: []election.ID{1}}
		for i := range dead {
			s.crashed = append(s.crashed, election.ID(n-i))
		}
		o := check(t, "StatusTable", s)
		found := dead - 1 // the crash of the coordinator is known
		expect.Equalf(t, o.Messages[election.Election], 1+found, "%d dead: ELECTION", dead)
		expect.Equalf(t, o.Elapsed, election.Tick(found)*reply+2*latency, "%d dead: duration", dead)
	}
}

// Attempts to send to a process that doesn't respond are reported separately.
// Each message is tried once for each such process that it reaches.
func TestSkippedAttempts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, algorithm := range []string{"RingActiveList", "RingSkip"} {
		for range 100 {
			s := draw(random, 1, true)
			o := check(t, algorithm, s)
			// The messages that go round: m identifiers, or one list and one announcement.
			rounds := 2
			if algorithm == "RingActiveList" {
				rounds = s.live()
			}
			must.Equalf(t, o.Skipped, rounds*len(s.crashed), "%s, %+v: skipped", algorithm, s)
		}
	}
}
