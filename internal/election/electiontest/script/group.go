// Package script runs an election step by step. A Group executes the commands of a
// script, one per line, and returns what the processes did. The files in the testdata of
// the algorithms are such scripts, with the outputs; the package has no other use.
//
// The network is a list of the messages in flight, oldest first. Nothing moves without a command: deliver delivers the
// oldest message, or the oldest one that matches, and reports when that overtakes another one on the same link. Time
// stands still between two ticks.
package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
)

// Mutations are functions that make a correct machine violate one rule, by the
// name under which the command group refers to them.
type Mutations map[string]func(election.Machine) election.Machine

// Group is a group of processes. The command group creates them.
type Group struct {
	broken     Mutations
	algorithm  catalog.Algorithm
	roster     *election.Roster
	timing     election.Timing
	machines   []election.Machine // by ID
	down       election.IDs
	now        election.Tick
	inFlight   []election.Message
	sent       [election.Stale + 1]int
	skipped    int
	stepOutput election.Output
	// output is the result of the present commands. If quiet, it omits the steps.
	output strings.Builder
	quiet  bool
}

// New returns an empty group, which supports the mutations in broken.
func New(broken Mutations) *Group { return &Group{broken: broken} }

// Run executes commands, one per line, and returns their output.
func (g *Group) Run(commands string) string {
	g.output.Reset()
	for line := range strings.Lines(commands) {
		g.quiet = false
		c, err := parse(line)
		if err == nil {
			err = g.run(c)
		}
		if err != nil {
			g.quiet = false
			g.printf("error: %v", err)
		}
	}
	return g.output.String()
}

func (g *Group) printf(format string, args ...any) {
	if !g.quiet {
		fmt.Fprintf(&g.output, format+"\n", args...)
	}
}

// create creates a group of n processes, whose priorities are their numbers.
func (g *Group) create(c command) error {
	algorithm, err := catalog.Find(c.text("algorithm"))
	if err != nil {
		return err
	}
	n := election.ID(c.number("n", 0))
	ring := c.ids("ring")
	for id := election.ID(1); id <= n && len(ring) < int(n); id++ {
		ring = append(ring, id)
	}
	if g.roster, err = newRoster(1, ring, c.ids("observers")); err != nil {
		return err
	}
	// Handling takes no time here, and a message less than 5 ticks. A takeover
	// may have to wait for all processes that are asked before.
	reply := c.number("reply", 10)
	g.timing = election.Timing{
		Reply: election.Tick(reply), Hop: election.Tick(c.number("hop", reply)),
		Takeover: election.Tick(c.number("takeover", reply*uint64(n+2))),
	}
	*g = Group{broken: g.broken, algorithm: algorithm, roster: g.roster, timing: g.timing}
	g.machines = make([]election.Machine, slices.Max(ring)+1)
	coordinator, term := election.ID(c.number("coordinator", uint64(n))), election.Term(c.number("term", 1))
	for _, id := range ring {
		if g.machines[id], err = g.newMachine(id, coordinator, term); err != nil {
			return err
		}
		if broken := g.broken[c.text("wrong")]; broken != nil {
			g.machines[id] = broken(g.machines[id])
		}
	}
	if c.text("wrong") != "" && g.broken[c.text("wrong")] == nil {
		return fmt.Errorf("unknown mutation %q", c.text("wrong"))
	}
	g.printf("ring %d, coordinator %d, term %d", ring, coordinator, term)
	return nil
}

func newRoster(version uint32, ring, observers []election.ID) (*election.Roster, error) {
	var members []election.Member
	for _, id := range ring {
		m := election.Member{ID: id, Priority: election.Priority(id)}
		if slices.Contains(observers, id) {
			m.Priority = 0
		}
		members = append(members, m)
	}
	return election.NewRoster(version, members)
}

func (g *Group) newMachine(id, coordinator election.ID, term election.Term) (election.Machine, error) {
	return g.algorithm.New(election.Config{
		Self: id, Roster: g.roster, Term: term, Coordinator: coordinator, Timing: g.timing,
	})
}

// step passes an input to a process and prints the results.
func (g *Group) step(id election.ID, in election.Input) {
	in.Now = g.now
	g.stepOutput.Reset()
	g.machines[id].Step(in, &g.stepOutput)
	g.printf("%d: %s", id, in.Describe())
	for _, e := range g.stepOutput.Events {
		g.printf("  %s", e.Describe())
	}
	for _, m := range g.stepOutput.Send {
		g.printf("  %s", m.Describe())
		g.inFlight = append(g.inFlight, m)
		switch {
		case g.algorithm.Ring && g.down.Has(m.To):
			g.skipped++
		case m.Kind.Counts():
			g.sent[m.Kind]++
		}
	}
}

// deliver delivers the message in flight with index i. On a ring, the sender is notified if the addressee is down.
func (g *Group) deliver(i int) {
	m := g.inFlight[i]
	for _, older := range g.inFlight[:i] {
		if older.From == m.From && older.To == m.To {
			g.printf("overtaken: %s", older.Describe())
		}
	}
	g.inFlight = slices.Delete(g.inFlight, i, i+1)
	switch {
	case !g.down.Has(m.To):
		g.step(m.To, election.Input{Kind: election.Receive, Message: m})
	case g.algorithm.Ring && !g.down.Has(m.From):
		g.step(m.From, election.Input{Kind: election.Undelivered, Message: m})
	default:
		g.printf("nobody there: %s", m.Describe())
	}
}

// tick advances the time, by default to the next deadline.
func (g *Group) tick(by election.Tick) {
	due := election.Never
	for id, m := range g.machines {
		if m != nil && !g.down.Has(election.ID(id)) {
			due = min(due, m.Deadline())
		}
	}
	switch {
	case by > 0:
		g.now += by
	case due == election.Never:
		g.printf("nobody waits for anything")
		return
	default:
		g.now = max(g.now, due)
	}
	g.printf("time %d", g.now)
	for id, m := range g.machines {
		if m != nil && !g.down.Has(election.ID(id)) && m.Deadline() <= g.now {
			g.step(election.ID(id), election.Input{Kind: election.TimePassed})
		}
	}
}
