package office_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// The durations in the tests, in ticks.
const (
	lease            election.Tick = 100
	heartbeat        election.Tick = 20
	suspicionTimeout election.Tick = 45
	stagger          election.Tick = 10
	drainTimeout     election.Tick = 15
	stablePeriod     election.Tick = 200

	// second is a second of the default settings, in ticks of a millisecond.
	second election.Tick = 1000
)

// group is a small group of processes whose messages the test delivers.
// Messages that aren't dropped or captured arrive at once.
type group struct {
	t            *testing.T
	mode         office.Mode
	now          election.Tick
	machines     [101]*office.Machine // by ID, nil when down
	incarnations [101]uint32
	// drop reports which messages are lost, capture which ones go to captured.
	drop, capture func(*election.Message) bool
	inFlight      []election.Message
	captured      []election.Message
	events        []groupEvent
	// appsKeepRunning: applications don't stop when they are requested to.
	appsKeepRunning bool
	// tokens are those of all tenures, in order.
	tokens []election.Token
	// configure changes the configurations with which processes start.
	configure func(*office.Config)
	// splitReported: two holders at once were reported already.
	splitReported bool
	// directories are, by ID, the identities of the state directories of processes.
	directories [101]election.Identity
	// reserved is, by ID, the reservation on the disk of a process, and stuck are the disks that store no other one.
	reserved [101]election.Term
	stuck    election.IDs
	// tenures is, by ID, what a process remembers of its tenures when it is killed.
	tenures [101]office.TenureRecord
}

type groupEvent struct {
	id    election.ID
	event election.Event
}

// term returns a term of list 1, which is the only one in most tests.
func term(counter election.Term) election.Term { return termOf(1, counter) }

func termOf(version uint32, counter election.Term) election.Term {
	return election.FirstTerm(version) + counter
}

func newRoster(t *testing.T, version uint32, ids ...election.ID) *election.Roster {
	t.Helper()
	ring := make([]election.Member, len(ids))
	for i, id := range ids {
		ring[i] = election.Member{ID: id, Priority: election.Priority(id)}
	}
	r, err := election.NewRoster(version, ring)
	must.Succeed(t, err)
	return r
}

// newGroup starts a group in which all processes agree on leader, in term 1.
func newGroup(
	t *testing.T, mode office.Mode, leader election.ID, roster *election.Roster, tune func(*office.Config),
) *group {
	t.Helper()
	g := &group{t: t, mode: mode, configure: tune}
	g.startAgreed(leader, roster)
	return g
}

// newGroupOfSeconds returns a group with the default settings.
func newGroupOfSeconds(t *testing.T, mode office.Mode) *group {
	g := &group{t: t, mode: mode}
	g.configure = func(c *office.Config) {
		c.Lease, c.Heartbeat, c.SuspicionTimeout, c.Stagger = second/2, second/10, 2*second/5, second/20
	}
	return g
}

// startAgreed starts all members of roster, in agreement on leader.
func (g *group) startAgreed(leader election.ID, roster *election.Roster) {
	g.t.Helper()
	for _, m := range roster.Ring() {
		g.start(m.ID, roster, func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, term(1), leader })
	}
	g.advance(1)
}

// start begins an incarnation of a process, without memory unless tune changes that. It has the state directory of the
// earlier ones.
func (g *group) start(id election.ID, roster *election.Roster, tune func(*office.Config)) {
	g.t.Helper()
	g.incarnations[id]++
	bully, err := catalog.Find("Bully")
	must.Succeed(g.t, err)
	c := office.Config{
		Config:      election.Config{Self: id, Roster: roster, Timing: election.DefaultTiming(1, 0)},
		NewElection: bully.New, Mode: g.mode, Lease: lease, Heartbeat: heartbeat,
		SuspicionTimeout: suspicionTimeout, Stagger: stagger,
		Policy: office.NeverPreempt, StablePeriod: stablePeriod, DrainTimeout: drainTimeout, Life: g.incarnations[id],
		MemoryLost: true, Forgotten: g.reserved[id], Identity: g.directories[id], Start: g.now,
		Tenures: g.tenures[id],
	}
	if g.reserved[id] > 0 {
		c.Reserved = g.reserved[id]
	}
	if g.configure != nil {
		g.configure(&c)
	}
	if tune != nil {
		tune(&c)
	}
	m, err := office.New(c)
	must.Succeed(g.t, err)
	g.machines[id], g.reserved[id] = m, m.Reserved()
}

// loseDirectory gives a process a new state directory.
func (g *group) loseDirectory(id election.ID) {
	g.directories[id]++
	g.tenures[id] = office.TenureRecord{}
	g.reserved[id] = 0
}

// crash ends a process. If noticed, all others are notified that it has ended.
func (g *group) crash(id election.ID, noticed bool) {
	g.t.Helper()
	g.machines[id] = nil
	if !noticed {
		return
	}
	for other := range g.machines {
		if g.machines[other] != nil {
			g.step(election.ID(other), election.Input{Kind: election.Ended, Peer: id, Life: g.incarnations[id]})
		}
	}
	g.deliverAll()
}

// step gives one input to a process, and checks what must always hold.
func (g *group) step(id election.ID, in election.Input) {
	g.t.Helper()
	in.Now = g.now
	var out election.Output
	g.machines[id].Step(in, &out)
	g.tenures[id] = g.machines[id].Tenures()
	g.inFlight = append(g.inFlight, out.Send...)
	for _, e := range out.Events {
		g.events = append(g.events, groupEvent{id, e})
		switch {
		case e.Kind == election.TenureStarted:
			g.tokens = append(g.tokens, e.Token)
		case e.Kind == election.StopRequested && !g.appsKeepRunning:
			g.step(id, election.Input{Kind: election.Stopped, Term: e.Term})
		}
	}
	g.reserve(id)
	if g.mode == office.Available {
		return
	}
	if ids := g.holders(); len(ids) > 1 && !g.splitReported {
		g.splitReported = true
		g.t.Errorf("at %d got holders %d, want at most one", g.now, ids)
	}
	for i := 1; i < len(g.tokens); i++ {
		if g.tokens[i] <= g.tokens[i-1] {
			g.t.Fatalf("at %d got token %d after token %d, want a higher one", g.now, g.tokens[i], g.tokens[i-1])
		}
	}
}

// reserve stores the terms that a process wants, unless its disk is stuck.
func (g *group) reserve(id election.ID) {
	g.t.Helper()
	m := g.machines[id]
	g.reserved[id] = m.Reserved() // a list is stored with a first block of its terms
	if wanted := m.Wanted(); wanted > g.reserved[id] && !g.stuck.Has(id) {
		g.step(id, election.Input{Kind: election.Reserved, Term: wanted})
	}
}

// deliverAll delivers all messages in flight, including those that result from them.
func (g *group) deliverAll() {
	g.t.Helper()
	for n := 0; len(g.inFlight) > 0; n++ {
		if n > 10000 {
			g.t.Fatalf("at %d messages cause messages forever", g.now)
		}
		m := g.inFlight[0]
		g.inFlight = g.inFlight[1:]
		switch {
		case g.drop != nil && g.drop(&m):
		case g.capture != nil && g.capture(&m):
			g.captured = append(g.captured, m)
		default:
			g.deliver(m)
		}
	}
}

// deliver delivers one message now.
func (g *group) deliver(m election.Message) {
	g.t.Helper()
	if g.machines[m.To] != nil {
		g.step(m.To, election.Input{Kind: election.Receive, Message: m})
	}
}

// advance advances the time by a number of ticks.
func (g *group) advance(ticks election.Tick) {
	g.t.Helper()
	g.deliverAll()
	for range ticks {
		g.now++
		for id, m := range g.machines {
			for n := 0; m != nil && m.Deadline() <= g.now; n++ {
				if n > 100 {
					g.t.Fatalf("at %d process %d requests ticks forever", g.now, id)
				}
				g.step(election.ID(id), election.Input{Kind: election.TimePassed})
				g.deliverAll()
			}
		}
	}
}

// untilHolder advances the time until a process holds the office, and returns the time that took.
func (g *group) untilHolder(limit election.Tick) election.Tick {
	g.t.Helper()
	from := g.now
	for len(g.holders()) == 0 {
		if g.now >= from+limit {
			g.t.Fatalf("at %d got no holder for %d ticks, want one", g.now, limit)
		}
		g.advance(1)
	}
	return g.now - from
}

// input gives one input to a process, and delivers the resulting messages.
func (g *group) input(id election.ID, in election.Input) {
	g.t.Helper()
	g.step(id, in)
	g.deliverAll()
}

func (g *group) adopt(r *election.Roster, ids ...election.ID) {
	g.t.Helper()
	for _, id := range ids {
		g.input(id, election.Input{Kind: election.Adopt, Roster: r})
	}
}

// holders are the processes that may act as coordinator now.
func (g *group) holders() (ids []election.ID) {
	for id, m := range g.machines {
		if m == nil {
			continue
		}
		if s := m.Status(); s.Token != 0 && g.now < s.Until {
			ids = append(ids, election.ID(id))
		}
	}
	return ids
}

// wantHolder checks which process holds the office; with None, that no process does.
func (g *group) wantHolder(want election.ID) {
	g.t.Helper()
	var ids []election.ID
	if want != election.None {
		ids = append(ids, want)
	}
	expect.EqualSlicesf(g.t, g.holders(), ids, "at %d: holders", g.now)
}

// wantFollowed checks that all of ids know the coordinator.
func (g *group) wantFollowed(leader election.ID, ids ...election.ID) {
	g.t.Helper()
	for _, id := range ids {
		expect.Equalf(g.t, g.machines[id].Status().Coordinator, leader, "at %d process %d: coordinator", g.now, id)
	}
}

// countEvents counts the events of a kind that a process reported.
func (g *group) countEvents(id election.ID, kind election.EventKind) (n int) {
	for _, f := range g.events {
		if f.id == id && f.event.Kind == kind {
			n++
		}
	}
	return n
}

func crosses(m *election.Message, side ...election.ID) bool {
	return slices.Contains(side, m.From) != slices.Contains(side, m.To)
}

// links[a][b] reports whether messages from a to b arrive.
type links [graphSize + 1][graphSize + 1]bool

func (l *links) both(a, b election.ID) bool { return l[a][b] && l[b][a] }

// connect restores the links between these processes, in the order of the pairs.
func connect(pairs ...[2]election.ID) (l links) {
	for _, p := range pairs {
		l[p[0]][p[1]], l[p[1]][p[0]] = true, true
	}
	return l
}

// reachesMajority reports whether a process exchanges messages with a majority.
func (l *links) reachesMajority(id election.ID) bool {
	reached := 1
	for other := election.ID(1); other <= graphSize; other++ {
		if l.both(id, other) {
			reached++
		}
	}
	return reached > graphSize/2
}

var allLinks = func() (l links) {
	for a := 1; a <= graphSize; a++ {
		for b := 1; b <= graphSize; b++ {
			l[a][b] = a != b
		}
	}
	return l
}()

// drawLinks draws links, some of them in one direction only, such that some process reaches a majority.
func drawLinks(r *rand.Rand, oneWay bool) links {
	for {
		var l links
		share := 0.25 + 0.6*r.Float64()
		for a := 1; a <= graphSize; a++ {
			for b := a + 1; b <= graphSize; b++ {
				l[a][b] = r.Float64() < share
				l[b][a] = l[a][b]
				if oneWay && r.Float64() < 0.3 {
					l[a][b] = r.Float64() < share
				}
			}
		}
		for id := election.ID(1); id <= graphSize; id++ {
			if l.reachesMajority(id) {
				return l
			}
		}
	}
}
