package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/conclave-dev/conclave/internal/election"
)

// command is one line: a name, words, and arguments with a value.
type command struct {
	name  string
	words []string
	args  []string // name=value
}

func parse(line string) (command, error) {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return command{}, fmt.Errorf("an empty command")
	}
	c := command{name: fields[0]}
	for _, f := range fields[1:] {
		if strings.Contains(f, "=") {
			c.args = append(c.args, f)
		} else {
			c.words = append(c.words, f)
		}
	}
	return c, nil
}

func (c command) has(word string) bool { return slices.Contains(c.words, word) }

func (c command) text(name string) string {
	for _, a := range c.args {
		if value, found := strings.CutPrefix(a, name+"="); found {
			return value
		}
	}
	return ""
}

func (c command) number(name string, fallback uint64) uint64 {
	n, err := strconv.ParseUint(c.text(name), 10, 64)
	if err != nil {
		return fallback
	}
	return n
}

func (c command) ids(name string) []election.ID { return idsOf(c.text(name)) }

// targets are the processes that the command is for.
func (c command) targets() []election.ID {
	if len(c.words) == 0 {
		return nil
	}
	return idsOf(c.words[0])
}

func idsOf(list string) []election.ID {
	var ids []election.ID
	for f := range strings.SplitSeq(list, ",") {
		if n, err := strconv.ParseUint(f, 10, 32); err == nil {
			ids = append(ids, election.ID(n))
		}
	}
	return ids
}

func (g *Group) run(c command) error {
	if c.name == "group" {
		return g.create(c)
	}
	for _, id := range c.targets() {
		if int(id) >= len(g.machines) || g.machines[id] == nil {
			return fmt.Errorf("there is no process %d", id)
		}
	}
	g.quiet = c.has("quietly")
	switch c.name {
	case "crash":
		for _, id := range c.targets() {
			g.down.Add(id)
		}
	case "deliver", "drop":
		return g.move(c)
	case "tick":
		g.tick(election.Tick(c.number("by", 0)))
	case "inject":
		return g.inject(c)
	case "flying":
		for _, m := range g.inFlight {
			g.printf("%s", m.Describe())
		}
	case "table":
		for _, id := range c.targets() {
			g.table(id)
		}
	case "status":
		g.status()
	case "counts":
		g.counts()
	default:
		return g.input(c)
	}
	return nil
}

// move delivers or drops messages that match the arguments from, to, origin and kind: the oldest one, or with the word
// all every message until none is in flight, including those that result.
func (g *Group) move(c command) error {
	moved := 0
	for {
		i := slices.IndexFunc(g.inFlight, func(m election.Message) bool {
			return (c.text("from") == "" || m.From == election.ID(c.number("from", 0))) &&
				(c.text("to") == "" || m.To == election.ID(c.number("to", 0))) &&
				(c.text("origin") == "" || m.Origin == election.ID(c.number("origin", 0))) &&
				(c.text("kind") == "" || m.Kind.String() == c.text("kind"))
		})
		if i < 0 && moved > 0 {
			return nil
		} else if i < 0 {
			return fmt.Errorf("no such message in flight")
		}
		if c.name == "drop" {
			g.printf("dropped: %s", g.inFlight[i].Describe())
			g.inFlight = slices.Delete(g.inFlight, i, i+1)
		} else {
			g.deliver(i)
		}
		if moved++; !c.has("all") {
			return nil
		}
		if moved > 10_000 {
			return fmt.Errorf("the messages never end")
		}
	}
}

// inject delivers a message that no process sent.
func (g *Group) inject(c command) error {
	m := election.Message{
		From: election.ID(c.number("from", 0)), To: election.ID(c.number("to", 0)), Term: election.Term(c.number("term", 0)),
		Subject: election.ID(c.number("about", 0)), Origin: election.ID(c.number("origin", 0)),
		Hops: uint32(c.number("hops", 0)), List: c.ids("list"),
	}
	for m.Kind.String() != c.text("kind") {
		if m.Kind++; m.Kind.String() == "UNKNOWN" {
			return fmt.Errorf("unknown kind %q", c.text("kind"))
		}
	}
	to := election.ID(c.number("at", uint64(m.To)))
	if int(to) >= len(g.machines) || g.machines[to] == nil {
		return fmt.Errorf("there is no process %d", to)
	}
	g.step(to, election.Input{Kind: election.Receive, Message: m})
	return nil
}

// input runs a command that is an input, such as campaign, recover or suspect.
func (g *Group) input(c command) error {
	kind := election.NoInput
	for ; kind.String() != c.name; kind++ {
		if kind.String() == "unknown" {
			return fmt.Errorf("unknown command %q", c.name)
		}
	}
	in := election.Input{
		Kind: kind, Ineligible: c.has("ineligible"), Term: election.Term(c.number("term", 0)),
		Peer: election.ID(c.number("dead", c.number("peer", 0))),
	}
	if kind == election.Adopt {
		var err error
		if in.Roster, err = newRoster(uint32(c.number("version", 2)), c.ids("ring"), c.ids("observers")); err != nil {
			return err
		}
	}
	for _, id := range c.targets() {
		if kind == election.Recover && g.down.Remove(id) {
			if err := g.restart(id, c); err != nil {
				return err
			}
		}
		g.step(id, in)
	}
	return nil
}

// restart starts a process that was down. The process remembers its term,
// unless the command has the word forgetful, and nothing else.
func (g *Group) restart(id election.ID, c command) error {
	term := g.machines[id].Status().Term
	if c.has("forgetful") {
		term = 0
	}
	m, err := g.newMachine(id, election.None, term)
	g.machines[id] = m
	return err
}

func (g *Group) table(id election.ID) {
	for _, row := range g.machines[id].Rows(nil) {
		g.printf("P%d %s", row.ID, strings.ToUpper(row.Status.String()))
	}
}

// status prints the status of all processes, equal ones in one line.
func (g *Group) status() {
	var lines []string
	for id := election.ID(1); int(id) < len(g.machines); id++ {
		if g.machines[id] == nil || g.down.Has(id) {
			lines = append(lines, "down")
			continue
		}
		s := g.machines[id].Status()
		line := fmt.Sprintf("coordinator %d, term %d", s.Coordinator, s.Term)
		if s.Electing {
			line += ", electing"
		}
		lines = append(lines, line)
	}
	for first := 0; first < len(lines); {
		last := first
		for last+1 < len(lines) && lines[last+1] == lines[first] {
			last++
		}
		if last == first {
			g.printf("%d: %s", first+1, lines[first])
		} else {
			g.printf("%d to %d: %s", first+1, last+1, lines[first])
		}
		first = last + 1
	}
}

// counts prints the number of sent messages by kind.
func (g *Group) counts() {
	total := 0
	for kind, n := range g.sent {
		if n > 0 {
			g.printf("%d %s", n, election.Kind(kind))
			total += n
		}
	}
	g.printf("%d in all", total)
	if g.skipped > 0 {
		g.printf("%d skipped", g.skipped)
	}
}
