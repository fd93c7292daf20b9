package election_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// plainTable is a process status table that stores every row: the table of
// [ImprovedBully], in which nothing is implied.
type plainTable struct {
	roster      *election.Roster
	coordinator election.ID
	crashed     map[election.ID]bool
}

func (n *plainTable) mark(id election.ID, crashed bool) bool {
	if !n.roster.Has(id) || n.crashed[id] == crashed {
		return false
	}
	n.crashed[id] = crashed
	if id == n.coordinator {
		n.coordinator = election.None
	}
	return true
}

// lead makes id the coordinator, which is the highest live process.
func (n *plainTable) lead(id election.ID) {
	n.coordinator = id
	for _, m := range n.roster.Ring() {
		if m.ID == id || n.roster.Outranks(m.ID, id) {
			n.crashed[m.ID] = m.ID != id
		}
	}
}

func (n *plainTable) adopt(roster *election.Roster) {
	before := n.crashed
	n.roster, n.crashed = roster, map[election.ID]bool{}
	for _, m := range roster.Ring() {
		n.crashed[m.ID] = before[m.ID]
	}
	if !roster.Has(n.coordinator) {
		n.coordinator = election.None
	}
}

func (n *plainTable) rows() []election.Row {
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

func (n *plainTable) highest() election.ID {
	for _, m := range n.roster.Ranked() {
		if m.Priority > 0 && !n.crashed[m.ID] {
			return m.ID
		}
	}
	return election.None
}

// tablePair is the table under test and the plain one.
type tablePair struct {
	table election.StatusTable
	plain plainTable
}

// The table stores only the rows that the coordinator's rank doesn't imply. It
// must be equal to a table that stores all rows after any changes to both.
func TestStatusTableMatchesPlainTable(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		roster := mustRoster(t, 1, members(random, 1+random.IntN(9)))
		coordinator := election.None
		x := tablePair{plain: plainTable{roster: roster, crashed: map[election.ID]bool{}}}
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

// change applies the same change to both tables.
func (x *tablePair) change(t *testing.T, random *rand.Rand) string {
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
		// A copy of a table whose coordinator isn't on this list has no coordinator.
		if random.IntN(4) == 0 {
			x.table.Copy(1000, nil)
			x.plain = plainTable{roster: x.plain.roster, crashed: map[election.ID]bool{}}
			return "copy with an unknown coordinator"
		}
		// A copy of its own table onto another one, with rows of unknown processes.
		other := election.NewStatusTable(x.plain.roster, id)
		other.Copy(x.table.Coordinator(), append(x.table.Exceptions(), 1000, election.None, x.table.Coordinator()))
		expect.Equalf(t, slices.Contains(other.Exceptions(), 1000), false, "rows of unknown processes")
		x.table = other
		return "copy"
	case 4:
		x.table.Mark(1000, true)
		return "mark an unknown process"
	default:
		crashed := random.IntN(2) == 0
		must.Equalf(t, x.table.Mark(id, crashed), x.plain.mark(id, crashed),
			"marking %d (crashed: %v): changed", id, crashed)
		return "mark"
	}
}

func (x *tablePair) compare(t *testing.T, step int, what string) {
	t.Helper()
	got, want := x.table.Rows(nil), x.plain.rows()
	if !slices.Equal(got, want) {
		t.Fatalf("step %d, %s: got rows\n%v, want\n%v", step, what, got, want)
	}
	if x.table.Coordinator() != x.plain.coordinator || x.table.Highest() != x.plain.highest() {
		t.Fatalf("step %d, %s: got coordinator %d, highest %d, want %d and %d", step, what,
			x.table.Coordinator(), x.table.Highest(), x.plain.coordinator, x.plain.highest())
	}
	for id, crashed := range x.plain.crashed {
		if x.table.Crashed(id) != crashed {
			t.Fatalf("step %d, %s: %d crashed: got %v, want %v", step, what, id, !crashed, crashed)
		}
	}
}

// Equal tables have the same encoding, and different ones don't.
func TestStatusTableEncoding(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	roster := mustRoster(t, 1, members(random, 6))
	seen := map[string]string{}
	for range 3000 {
		x := tablePair{plain: plainTable{roster: roster, crashed: map[election.ID]bool{}}, table: election.NewStatusTable(
			roster, 0)}
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
			t.Fatalf("%s and %s: got equal encodings, want different ones", before, rows)
		}
		seen[code] = rows
	}
	states := map[string]bool{}
	for _, rows := range seen {
		if states[rows] {
			t.Fatalf("%s: got two encodings, want one", rows)
		}
		states[rows] = true
	}
	if len(states) < 100 {
		t.Fatalf("got %d different tables, want at least 100", len(states))
	}
}

func TestStatusTableCloneIsIndependent(t *testing.T) {
	roster := mustRoster(t, 1, ring(pairs{{1, 1}, {2, 2}, {3, 3}, {4, 4}}))
	table := election.NewStatusTable(roster, 4)
	table.Mark(1, true)
	table.Mark(3, true)
	before := table.Rows(nil)
	clone := table.Clone()
	clone.Mark(1, false)
	clone.Mark(2, true)
	table.Exceptions()[0] = 2
	expect.EqualSlicesf(t, table.Rows(nil), before, "rows after a change of the copy")
}
