package office_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/electiontest/transitions"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// The tests of this file break links permanently and demand a coordinator that stays, without healing anything: see the
// comment of vacancy. The intervals are those of an agent with default settings, in ticks of a tenth of a millisecond.
const (
	graphSize                                  = 5
	graphSecond                  election.Tick = 10_000
	graphHeartbeat                             = graphSecond / 10
	graphLease                                 = 5 * graphHeartbeat
	graphSuspicionTimeout                      = 4 * graphHeartbeat
	graphReply                                 = graphHeartbeat / 4
	graphStable                                = 5 * graphSecond
	graphDelayMin, graphDelayMax               = 2, 10
	// graphSettled is when there must be a coordinator: ten heartbeats and a lease.
	graphSettled = 10*graphHeartbeat + graphLease
	// graphHealthy is how long a healthy group runs before its links break.
	graphHealthy = 20 * graphHeartbeat
	// graphHandOver is how long a hand-over may take.
	graphHandOver = 5 * graphDelayMax
)

// delivery is a message that arrives, or a check of a process's deadline.
type delivery struct {
	at      election.Tick
	order   int
	to      election.ID
	message *election.Message
}

type deliveries []*delivery

func (d deliveries) Len() int { return len(d) }
func (d deliveries) Less(i, j int) bool {
	return d[i].at < d[j].at || d[i].at == d[j].at && d[i].order < d[j].order
}
func (d deliveries) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *deliveries) Push(x any)   { *d = append(*d, x.(*delivery)) } //nolint:errcheck,forcetypeassert // It is one.
func (d *deliveries) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// graph is a group of offices on a network with fixed links and FIFO delays.
type graph struct {
	links    links
	mode     office.Mode
	machines [graphSize + 1]*office.Machine
	queue    deliveries
	order    int
	now      election.Tick
	random   *rand.Rand
	arrival  [graphSize + 1][graphSize + 1]election.Tick
	sent     int
	terms    election.Term
	brokenAt election.Tick
	// until is, by ID, the end of the tenure of a process that has one.
	until [graphSize + 1]election.Tick

	// holder is the coordinator, in the modes that have at most one, since a moment.
	holder election.ID
	since  election.Tick
	// changes counts its changes once settled, and vacant is how long there was none.
	changes int
	vacant  election.Tick
	// visited are the changes of roles.
	visited map[transitions.Row]bool
}

func newGraph(t *testing.T, c graphCase, l links, seed uint64) *graph {
	t.Helper()
	g := &graph{links: allLinks, mode: c.mode, random: rand.New(rand.NewPCG(seed, 1)), visited: map[transitions.Row]bool{}}
	ids := make([]election.ID, graphSize)
	for i := range ids {
		ids[i] = election.ID(i + 1)
	}
	roster := newRoster(t, 1, ids...)
	for _, id := range ids {
		config := office.Config{
			Config: election.Config{
				Self: id, Roster: roster, Timing: election.Timing{Reply: graphReply, Takeover: 3 * graphReply, Hop: graphReply},
			},
			NewElection: c.algorithm.New, Mode: c.mode, Policy: c.policy, Lease: graphLease, Heartbeat: graphHeartbeat,
			SuspicionTimeout: graphSuspicionTimeout, Stagger: graphHeartbeat / 2, StablePeriod: graphStable,
			DrainTimeout: graphSecond, Life: 7,
			OnTransition: func(v office.Transition) { g.visited[transitions.Of(v)] = true },
		}
		if config.MemoryLost = c.restarted; !c.restarted {
			config.Term, config.Coordinator = term(1), graphSize
		}
		m, err := office.New(config)
		must.Succeed(t, err)
		g.machines[id] = m
		g.schedule(id)
	}
	if !c.restarted {
		g.run(graphHealthy)
	}
	g.links, g.brokenAt, g.sent = l, g.now, 0
	if c.restarted {
		for _, id := range ids {
			g.step(id, election.Input{Kind: election.Recover})
		}
	}
	return g
}

func (g *graph) push(at election.Tick, to election.ID, m *election.Message) {
	g.order++
	heap.Push(&g.queue, &delivery{at, g.order, to, m})
}

func (g *graph) schedule(id election.ID) {
	if due := g.machines[id].Deadline(); due != election.Never {
		g.push(max(due, g.now+1), id, nil)
	}
}

func (g *graph) step(id election.ID, in election.Input) {
	in.Now = g.now
	var out election.Output
	g.machines[id].Step(in, &out)
	for i := range out.Send {
		m := &out.Send[i]
		g.sent++
		g.terms = max(g.terms, m.Term)
		if g.links[m.From][m.To] {
			delay := election.Tick(graphDelayMin + g.random.IntN(graphDelayMax-graphDelayMin+1))
			arrival := &g.arrival[m.From][m.To]
			*arrival = max(*arrival, g.now+delay)
			g.push(*arrival, m.To, m)
		}
	}
	g.until[id] = 0
	if s := g.machines[id].Status(); s.Token != 0 {
		g.until[id] = s.Until
	}
	for _, e := range out.Events {
		if e.Kind == election.StopRequested {
			g.step(id, election.Input{Kind: election.Stopped, Term: e.Term})
		}
	}
	g.schedule(id)
}

// run handles everything that is due until a moment after the links broke.
func (g *graph) run(until election.Tick) {
	until += g.brokenAt
	for len(g.queue) > 0 && g.queue[0].at <= until {
		next, ok := heap.Pop(&g.queue).(*delivery)
		if !ok {
			return
		}
		g.now = next.at
		switch {
		case next.message != nil:
			g.step(next.to, election.Input{Kind: election.Receive, Message: *next.message})
		case g.machines[next.to].Deadline() <= g.now:
			g.step(next.to, election.Input{Kind: election.TimePassed})
		}
		g.observe()
	}
	g.now = until
	g.observe()
}

// observe records who holds the office.
func (g *graph) observe() {
	var holder election.ID
	for id, until := range g.until {
		if g.now < until {
			holder = election.ID(id)
		}
	}
	settled := g.brokenAt + graphSettled
	if g.holder == election.None && g.now > settled {
		g.vacant += g.now - max(g.since, settled)
	}
	if g.holder != holder && g.now >= settled && holder != election.None {
		g.changes++
	}
	g.holder, g.since = holder, g.now
}

// graphCase is a configuration of the group. It starts in agreement on the highest
// process, from which most links are then gone, or with all processes restarted.
type graphCase struct {
	algorithm catalog.Algorithm
	mode      office.Mode
	policy    office.Policy
	restarted bool
}

// inEachCase runs a test for all algorithms, policies and starts.
func inEachCase(t *testing.T, modes []office.Mode, test func(*testing.T, graphCase)) {
	t.Helper()
	policies := map[string]office.Policy{
		"Always": office.Always, "WhenStable": office.WhenStable, "Never": office.NeverPreempt,
	}
	for _, mode := range modes {
		for _, algorithm := range catalog.All() {
			for policy := range policies {
				for _, restarted := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/%s/restarted=%t", mode, algorithm.Name, policy, restarted), func(t *testing.T) {
						t.Parallel()
						test(t, graphCase{algorithm, mode, policies[policy], restarted})
					})
				}
			}
		}
	}
}

// changesMax is how often the coordinator may change once there is one: it may be
// handed to a higher process as soon as the policy allows.
func (c graphCase) changesMax() int {
	if c.policy == office.NeverPreempt {
		return 0
	}
	return graphSize - 1
}

// checkGrants checks the modes with grants: once settled, there always is a
// coordinator, and it changes only by hand-overs, of which there are few.
func (c graphCase) checkGrants(t *testing.T, name string, l links, seed uint64, lasting election.Tick) {
	t.Helper()
	g := newGraph(t, c, l, seed)
	g.run(lasting)
	expect.AtMostf(t, g.changes, c.changesMax(), "%s: changes of the coordinator", name)
	expect.AtMostf(t, g.vacant, election.Tick(g.changes)*graphHandOver, "%s: ticks without a coordinator", name)
	if c.policy != office.NeverPreempt { // no hand-over is pending any more
		before := g.changes
		g.run(lasting + 5*graphSecond)
		expect.Equalf(t, g.changes, before, "%s: changes of the coordinator after %d ticks", name, lasting)
	}
	g.checkCost(t, name, lasting)
}

// checkTransitions checks that the package comment lists all changes of roles.
func (g *graph) checkTransitions(t *testing.T, name string) {
	t.Helper()
	source := must.ReadFile(t, "doc.go")
	documented, err := transitions.Parse(string(source))
	must.Succeed(t, err)
	for row := range g.visited {
		if !documented[row] {
			t.Errorf("%s: the table of transitions lacks %v", name, row)
		}
	}
}

// checkCost checks that messages and terms grow with time and not with failures: a process sends at most two probes or
// BEATs to each other one in a heartbeat, and answers those of the others. Elections are a small part.
func (g *graph) checkCost(t *testing.T, name string, lasting election.Tick) {
	t.Helper()
	g.checkTransitions(t, name)
	const pairs, perHeartbeat, elections = graphSize * (graphSize - 1), 2, 2000
	expect.AtMostf(t, g.sent, pairs*perHeartbeat*int(lasting/graphHeartbeat)+elections, "%s: messages", name)
	const termsMax = 40
	expect.AtMostf(t, election.Term(g.terms.Counter()), termsMax+election.Term(lasting/graphSecond), "%s: terms", name)
}

// namedGraphs are those of the literature on partial connectivity. The coordinator is process 5 when the links break.
var namedGraphs = map[string]links{
	// Only the lowest process reaches a majority.
	"hub": connect([2]election.ID{1, 2}, [2]election.ID{1, 3}, [2]election.ID{1, 4}, [2]election.ID{1, 5}),
	// Three processes reach a majority, and not all of them each other.
	"chain": connect([2]election.ID{1, 2}, [2]election.ID{2, 3}, [2]election.ID{3, 4}, [2]election.ID{4, 5}),
	"ring": connect([2]election.ID{1, 2}, [2]election.ID{2, 3}, [2]election.ID{3, 4},
		[2]election.ID{4, 5}, [2]election.ID{5, 1}),
	// The coordinator keeps its links but one, to a process that reaches a majority.
	"chained": connect([2]election.ID{5, 1}, [2]election.ID{5, 2}, [2]election.ID{5, 3}, [2]election.ID{4, 1},
		[2]election.ID{4, 2}, [2]election.ID{4, 3}),
	// The coordinator loses its majority, but not all of its links.
	"quorum loss": connect([2]election.ID{5, 1}, [2]election.ID{1, 2}, [2]election.ID{1, 3}, [2]election.ID{1, 4}),
}

// graphEffort is the number of random graphs, and how long the named ones last. A test of
// mutants runs the tests of this package many times, so it gets fewer.
func graphEffort() (graphs int, lasting election.Tick) {
	if testing.Short() || os.Getenv("CONCLAVE_MUTANT") != "" {
		return 6, 40 * graphSecond
	}
	return 30, 600 * graphSecond
}

func TestEveryStaticGraphHasCoordinatorThatStays(t *testing.T) {
	graphs, lasting := graphEffort()
	inEachCase(t, []office.Mode{office.Majority, office.Strict}, func(t *testing.T, c graphCase) {
		for name, l := range namedGraphs {
			c.checkGrants(t, name, l, 1, lasting)
		}
		for seed := range uint64(graphs) {
			l := drawLinks(rand.New(rand.NewPCG(seed, 2)), seed%2 == 1)
			c.checkGrants(t, fmt.Sprintf("seed %d, %v", seed, l), l, seed, 40*graphSecond)
		}
	})
}

// In Available mode each process settles on a coordinator with which it exchanges messages.
func TestAvailableSettlesInEveryStaticGraph(t *testing.T) {
	graphs, _ := graphEffort()
	inEachCase(t, []office.Mode{office.Available}, func(t *testing.T, c graphCase) {
		for name, l := range namedGraphs {
			c.checkAvailable(t, name, l, 1)
		}
		for seed := range uint64(graphs) {
			l := drawLinks(rand.New(rand.NewPCG(seed, 2)), seed%2 == 1)
			c.checkAvailable(t, fmt.Sprintf("seed %d, %v", seed, l), l, seed)
		}
	})
}

func (c graphCase) checkAvailable(t *testing.T, name string, l links, seed uint64) {
	t.Helper()
	const settled, lasting = 10 * graphSecond, 40 * graphSecond
	g := newGraph(t, c, l, seed)
	g.run(settled)
	var followed [graphSize + 1]election.ID
	for id := election.ID(1); id <= graphSize; id++ {
		coordinator := g.machines[id].Status().Coordinator
		followed[id] = coordinator
		switch {
		case coordinator == election.None:
			t.Errorf("%s: process %d has no coordinator", name, id)
		case coordinator != id && !l.both(id, coordinator):
			t.Errorf("%s: process %d follows %d, with which it doesn't exchange messages", name, id, coordinator)
		case g.machines[coordinator].Status().Token == 0:
			t.Errorf("%s: process %d follows %d, which doesn't lead", name, id, coordinator)
		}
	}
	for now := settled; now < lasting; now += graphHeartbeat {
		g.run(now)
		for id := election.ID(1); id <= graphSize; id++ {
			if got := g.machines[id].Status().Coordinator; got != followed[id] {
				t.Fatalf("%s: process %d changed from coordinator %d to %d after %d ticks", name, id, followed[id], got, now)
			}
		}
	}
	g.checkCost(t, name, lasting)
}
