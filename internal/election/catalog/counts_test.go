package catalog_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/sim"
)

// latency is Ttrans of every scenario here; handling takes no time.
const latency = sim.Millisecond

// counts are messages by kind. The order is that of election.Kinds.
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

// situation is one election: who of n is alive, who starts it, in which order
// the ring is. Priorities are the processes' numbers.
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

// hops is the way along the ring from one process to another, over every place.
func (s testElection) hops(from, to election.ID) int {
	a, b := slices.Index(s.ring, from), slices.Index(s.ring, to)
	return (b - a + s.n) % s.n
}

// draw makes a situation: up to 60 processes, some of them down, in any order.
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

// bullyCounts goes through the election message by message, and doesn't know
// the machine: everyone live from the lowest initiator on asks everyone above,
// but for who has only the crashed coordinator above it; each live one answers
// each live one below that asked; the highest tells everyone below.
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

// formulas are the counts of the contract, for one initiator and, but for
// RingChampion, for several at once.
var formulas = map[string]func(testElection) counts{
	"Bully": bullyCounts,
	"StatusTable": func(s testElection) counts {
		// The initiator goes down from n-1 to the highest live process, which answers.
		// Where the coordinator is up, that is who is asked.
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

// check runs the situation and compares its counts with the formula.
func check(t *testing.T, algorithm string, s testElection) sim.Outcome {
	t.Helper()
	o, err := sim.Run(s.scenario(algorithm))
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	if want := s.highest(); !o.Agreed || o.Coordinator != want {
		t.Fatalf("%+v:\nelected %d (agreed: %v), want %d", s, o.Coordinator, o.Agreed, want)
	}
	want := formulas[algorithm](s)
	if got := counts(o.Messages); got.String() != want.String() {
		t.Fatalf("%+v:\nsent %s, want %s", s, got, want)
	}
	return o
}

// The same without a ring. In the bully it costs what the lowest initiator
// alone would; with a status table all that start ask for themselves, and the
// highest announces itself once. In which order they are named makes no
// difference.
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
			t.Fatalf("%s: only %d situations had several initiators", algorithm, several)
		}
	}
}

// Seed 000: "the number of messages per election can be a maximum of 3n - 1", and
// the time "could be as high as (3n - 1)" worst-case delays. Both are reached when
// the one right behind the highest starts.
func TestRingChampionWorstCase(t *testing.T) {
	for n := 3; n <= 60; n++ {
		s := testElection{n: n, initiators: []election.ID{1}, crashed: []election.ID{election.ID(n)}}
		s.ring = []election.ID{1, election.ID(n)}
		for id := 2; id < n; id++ {
			s.ring = append(s.ring, election.ID(id))
		}
		o := check(t, "RingChampion", s)
		if o.Total != 3*n-1 {
			t.Errorf("n=%d: %d messages, want %d", n, o.Total, 3*n-1)
		}
		// The announcement that is back tells nobody anything: one hop less.
		if want := election.Tick(3*n-2) * latency; o.Elapsed != want {
			t.Errorf("n=%d: took %d, want %d", n, o.Elapsed, want)
		}
	}
}

// However many start at once, one is elected, and nobody's message goes round
// for long: at most each initiator's on its way to the champion.
func TestRingChampionWithSeveralInitiators(t *testing.T) {
	random := rand.New(rand.NewPCG(42, 108))
	for range 200 {
		s := draw(random, 2+random.IntN(60), true)
		o, err := sim.Run(s.scenario("RingChampion"))
		if err != nil || !o.Agreed || o.Coordinator != s.highest() {
			t.Fatalf("%+v: %v, elected %d", s, err, o.Coordinator)
		}
		most := s.n
		for _, p := range s.initiators {
			most += s.hops(p, s.highest())
		}
		if got := o.Messages[election.ElectMe]; got < s.n || got > most {
			t.Fatalf("%+v: %d ELECT_ME, want %d to %d", s, got, s.n, most)
		}
		if got := o.Messages[election.NewCoordinator]; got != s.n {
			t.Fatalf("%+v: %d NEW_COORDINATOR, want %d", s, got, s.n)
		}
	}
}

// Each process found dead on the way down adds one ELECTION and one T (contract,
// StatusTable; seed 004, 4.2).
func TestStatusTableTriesProcessesInOrder(t *testing.T) {
	const n = 20
	reply := election.DefaultTiming(latency, 0).Reply
	for dead := 1; dead < n-1; dead++ {
		s := testElection{n: n, initiators: []election.ID{1}}
		for i := range dead {
			s.crashed = append(s.crashed, election.ID(n-i))
		}
		o := check(t, "StatusTable", s)
		found := dead - 1 // the coordinator's crash is known
		if got := o.Messages[election.Election]; got != 1+found {
			t.Errorf("%d dead: %d ELECTION, want %d", dead, got, 1+found)
		}
		if want := election.Tick(found)*reply + 2*latency; o.Elapsed != want {
			t.Errorf("%d dead: took %d, want %d", dead, o.Elapsed, want)
		}
	}
}

// Attempts at silent successors are reported apart (contract, RingSkip): each
// message that meets one is tried once for each silent place that it comes to.
func TestSkippedAttempts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, algorithm := range []string{"RingActiveList", "RingSkip"} {
		for range 100 {
			s := draw(random, 1, true)
			o := check(t, algorithm, s)
			// The messages that go round: m numbers, or one list and one announcement.
			rounds := 2
			if algorithm == "RingActiveList" {
				rounds = s.live()
			}
			if want := rounds * len(s.crashed); o.Skipped != want {
				t.Fatalf("%s, %+v: skipped %d, want %d", algorithm, s, o.Skipped, want)
			}
		}
	}
}
