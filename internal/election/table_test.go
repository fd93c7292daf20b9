package election_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
)

// naive is a process status table that keeps every row: the plain table of seed
// 004, with nothing implied.
type naive struct {
	roster      *election.Roster
	coordinator election.ID
	crashed     map[election.ID]bool
}

func (n *naive) mark(id election.ID, crashed bool) bool {
	if !n.roster.Has(id) || n.crashed[id] == crashed {
		return false
	}
	n.crashed[id] = crashed
	if id == n.coordinator {
		n.coordinator = election.None
	}
	return true
}

// lead: the coordinator is the highest live process.
func (n *naive) lead(id election.ID) {
	n.coordinator = id
	for _, m := range n.roster.Ring() {
		if m.ID == id || n.roster.Outranks(m.ID, id) {
			n.crashed[m.ID] = m.ID != id
		}
	}
}

func (n *naive) adopt(roster *election.Roster) {
	before := n.crashed
	n.roster, n.crashed = roster, map[election.ID]bool{}
	for _, m := range roster.Ring() {
		n.crashed[m.ID] = before[m.ID]
	}
	if !roster.Has(n.coordinator) {
		n.coordinator = election.None
	}
}

func (n *naive) rows() []election.Row {
	var rows []election.Row
	for _, m := range n.roster.Ranked() {
		row := election.Row{ID: m.ID, Priority: m.Priority, Status: election.Normal}
		switch {
		case m.ID == n.coordinator:
			row.Status = election.Coordinating
		case n.crashed[m.ID]:
			row.Status = election.Crashed
		}
		rows = append(rows, row)
	}
	return rows
}

func (n *naive) highest() election.ID {
	for _, m := range n.roster.Ranked() {
		if m.Priority > 0 && !n.crashed[m.ID] {
			return m.ID
		}
	}
	return election.None
}

// tables are the table under test and the plain one.
type tables struct {
	table election.StatusTable
	plain naive
}

// The table keeps only the rows that the coordinator's rank doesn't imply. It
// must say the same as one that keeps them all, whatever happens to both.
func TestStatusTableAgainstAPlainOne(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		roster := mustRoster(t, 1, members(random, 1+random.IntN(9)))
		coordinator := election.None
		x := tables{plain: naive{roster: roster, crashed: map[election.ID]bool{}}}
		if random.IntN(2) == 0 {
			coordinator = roster.Ring()[0].ID
			x.plain.lead(coordinator)
		}
		x.table = election.NewStatusTable(roster, coordinator)
		for step := range 60 {
			what := x.change(t, random)
			x.compare(t, step, what)
		}
	}
}

// change does the same thing to both.
func (x *tables) change(t *testing.T, random *rand.Rand) string {
	t.Helper()
	ring := x.plain.roster.Ring()
	id := ring[random.IntN(len(ring))].ID
	switch random.IntN(12) {
	case 0, 1:
		x.table.SetCoordinator(id)
		x.plain.lead(id)
		return "lead"
	case 2:
		next := mustRoster(t, x.plain.roster.Version+1, members(random, 1+random.IntN(9)))
		x.table.Adopt(next)
		x.plain.adopt(next)
		return "adopt"
	case 3:
		// A table of somebody whose coordinator isn't on this list is one without.
		if random.IntN(4) == 0 {
			x.table.Copy(1000, nil)
			x.plain = naive{roster: x.plain.roster, crashed: map[election.ID]bool{}}
			return "copy of a stranger's"
		}
		// A copy of its own table, over another one, with strangers' rows besides.
		other := election.NewStatusTable(x.plain.roster, id)
		other.Copy(x.table.Coordinator(), append(x.table.Exceptions(), 1000, election.None))
		x.table = other
		return "copy"
	case 4:
		x.table.Mark(1000, true)
		return "mark a stranger"
	default:
		crashed := random.IntN(2) == 0
		if a, b := x.table.Mark(id, crashed), x.plain.mark(id, crashed); a != b {
			t.Fatalf("marking %d (crashed: %v) changes something: %v, want %v", id, crashed, a, b)
		}
		return "mark"
	}
}

func (x *tables) compare(t *testing.T, step int, what string) {
	t.Helper()
	got, want := x.table.Rows(nil), x.plain.rows()
	if !slices.Equal(got, want) {
		t.Fatalf("step %d, %s: the rows are\n%v, want\n%v", step, what, got, want)
	}
	if x.table.Coordinator() != x.plain.coordinator || x.table.Highest() != x.plain.highest() {
		t.Fatalf("step %d, %s: coordinator %d, highest %d, want %d and %d", step, what,
			x.table.Coordinator(), x.table.Highest(), x.plain.coordinator, x.plain.highest())
	}
	for id, crashed := range x.plain.crashed {
		if x.table.Crashed(id) != crashed {
			t.Fatalf("step %d, %s: %d crashed: %v, want %v", step, what, id, !crashed, crashed)
		}
	}
}

// Equal tables are encoded alike, and different ones aren't.
func TestStatusTableEncoding(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	roster := mustRoster(t, 1, members(random, 6))
	seen := map[string]string{}
	for range 3000 {
		x := tables{plain: naive{roster: roster, crashed: map[election.ID]bool{}}, table: election.NewStatusTable(roster, 0)}
		for range random.IntN(12) {
			id := roster.Ring()[random.IntN(6)].ID
			if random.IntN(3) == 0 {
				x.table.SetCoordinator(id)
			} else {
				x.table.Mark(id, random.IntN(2) == 0)
			}
		}
		rows := ""
		for _, row := range x.table.Rows(nil) {
			rows += row.Status.String()
		}
		code := string(x.table.Encode(nil))
		if before, found := seen[code]; found && before != rows {
			t.Fatalf("%s and %s are encoded alike", before, rows)
		}
		seen[code] = rows
	}
	states := map[string]bool{}
	for _, rows := range seen {
		if states[rows] {
			t.Fatalf("%s is encoded in two ways", rows)
		}
		states[rows] = true
	}
	if len(states) < 100 {
		t.Fatalf("only %d different tables were tried", len(states))
	}
}

func TestStatusTableCloneIsIndependent(t *testing.T) {
	roster := mustRoster(t, 1, []election.Member{{1, 1}, {2, 2}, {3, 3}, {4, 4}})
	table := election.NewStatusTable(roster, 4)
	table.Mark(1, true)
	table.Mark(3, true)
	before := table.Rows(nil)
	clone := table.Clone()
	clone.Mark(1, false)
	clone.Mark(2, true)
	table.Exceptions()[0] = 2
	if !slices.Equal(table.Rows(nil), before) {
		t.Errorf("the table changed with its copy: %v, want %v", table.Rows(nil), before)
	}
}
