// Package transcript tells an election step by step: a Group takes one command a
// line, and answers with what the processes did. It is what the transcripts in
// the algorithms' testdata are written in, and for nothing else.
//
// The network is a list of the messages that have left, oldest first. Nothing
// moves unless a command says so: deliver hands over the oldest message, or the
// oldest that is asked for, and says when that overtakes another one on the
// same link. Time stands still between two ticks.
package transcript

import (
	"fmt"
	"slices"
	"strings"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
)

// Mutations are machines that break one rule, by the name that the command group
// calls them by. Each makes a right machine wrong.
type Mutations map[string]func(election.Machine) election.Machine

// Group is a group of processes; the command group fills it.
type Group struct {
	broken    Mutations
	algorithm catalog.Algorithm
	roster    *election.Roster
	timing    election.Timing
	machines  []election.Machine // by ID
	down      election.IDs
	now       election.Tick
	inFlight  []election.Message
	sent      [election.Stale + 1]int
	skipped   int
	out       election.Output
	// answer is what the present commands have brought about; quiet leaves the
	// steps out of it.
	answer strings.Builder
	quiet  bool
}

// New is an empty group, which knows some wrong machines.
func New(wrong Mutations) *Group { return &Group{broken: wrong} }

// Run carries out commands, one a line, and returns what came of them.
func (g *Group) Run(commands string) string {
	g.answer.Reset()
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
	return g.answer.String()
}

func (g *Group) printf(format string, args ...any) {
	if !g.quiet {
		fmt.Fprintf(&g.answer, format+"\n", args...)
	}
}

// found makes a group of n processes, whose priorities are their numbers.
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
	if g.roster, err = roster(1, ring, c.ids("observers")); err != nil {
		return err
	}
	// Handling takes no time here, and a message less than 5 ticks. A takeover
	// may have to wait for everyone who is asked before.
	reply := c.number("reply", 10)
	g.timing = election.Timing{
		Reply: election.Tick(reply), Hop: election.Tick(c.number("hop", reply)),
		Takeover: election.Tick(c.number("takeover", reply*uint64(n+2))),
	}
	*g = Group{broken: g.broken, algorithm: algorithm, roster: g.roster, timing: g.timing}
	g.machines = make([]election.Machine, slices.Max(ring)+1)
	coordinator, term := election.ID(c.number("coordinator", uint64(n))), election.Term(c.number("term", 1))
	for _, id := range ring {
		if g.machines[id], err = g.machine(id, coordinator, term); err != nil {
			return err
		}
		if broken := g.broken[c.text("wrong")]; broken != nil {
			g.machines[id] = broken(g.machines[id])
		}
	}
	if c.text("wrong") != "" && g.broken[c.text("wrong")] == nil {
		return fmt.Errorf("no machine is wrong in this way: %s", c.text("wrong"))
	}
	g.printf("ring %d, coordinator %d, term %d", ring, coordinator, term)
	return nil
}

func roster(version uint32, ring, observers []election.ID) (*election.Roster, error) {
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

func (g *Group) machine(id, coordinator election.ID, term election.Term) (election.Machine, error) {
	return g.algorithm.New(election.Config{
		Self: id, Roster: g.roster, Term: term, Coordinator: coordinator, Timing: g.timing,
	})
}

// step lets a process take an input and says what follows.
func (g *Group) step(id election.ID, in election.Input) {
	in.Now = g.now
	g.out.Reset()
	g.machines[id].Step(in, &g.out)
	g.printf("%d: %s", id, in.Describe())
	for _, e := range g.out.Events {
		g.printf("  %s", e.Describe())
	}
	for _, m := range g.out.Send {
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

// arrive hands the message at place i of those that fly to its addressee. On a
// ring, the sender learns when nobody is there.
func (g *Group) arrive(i int) {
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

// tick moves time on, to the next deadline if it isn't said how far.
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
