package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/sim"
)

// made makes a table of n rows, in which those named are crashed.
func made(n, coordinator election.ID, by []election.ID, crashed ...election.ID) heldTable {
	t := heldTable{by: by}
	for id := n; id > 0; id-- {
		row := election.Row{ID: id, Priority: election.Priority(id), Status: election.Normal}
		if id == coordinator {
			row.Status = election.Coordinating
		}
		for _, c := range crashed {
			if c == id {
				row.Status = election.Crashed
			}
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func TestDifferentTablesStandSideBySide(t *testing.T) {
	var b strings.Builder
	writeStatusTables(&b, &sim.Scenario{Processes: 4, Crashed: []election.ID{4}}, []heldTable{
		made(4, 3, []election.ID{1, 3}, 4), made(4, 0, []election.ID{2}, 4, 3),
	})
	golden(t, "different-tables.txt", b.String())
}

// Of many processes, rows that are alike are one; of many tables, the first few
// are shown, and it is said how many aren't.
func TestManyDifferentTablesAreCutShort(t *testing.T) {
	var tables []heldTable
	for id := election.ID(1); id <= 50; id++ {
		tables = append(tables, made(200, 199, []election.ID{id}, 200, id+20))
	}
	var b strings.Builder
	writeStatusTables(&b, &sim.Scenario{Processes: 200, Crashed: []election.ID{200}}, tables)
	golden(t, "many-tables.txt", b.String())
}

func TestEveryTableOfFewProcessesIsShown(t *testing.T) {
	var tables []heldTable
	for id := election.ID(1); id <= 13; id++ {
		tables = append(tables, made(14, 14, []election.ID{id}, id))
	}
	var b strings.Builder
	writeStatusTables(&b, &sim.Scenario{Processes: 14}, tables)
	for _, want := range []string{"OF 1 ", "OF 7 ", "OF 13\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no column %q in\n%s", want, b.String())
		}
	}
}

// Machines in different states may hold equal tables, which are shown once.
func TestEachHoldsTheTableThatIsShownAsItsOwn(t *testing.T) {
	for _, s := range []sim.Scenario{
		{Algorithm: "Bully", Processes: 9, Crashed: []election.ID{9}, Initiators: []election.ID{1, 5}, Latency: 1000},
		{Algorithm: "StatusTable", Processes: 9, Initiators: []election.ID{9}, Latency: 1000, Safety: "Majority"},
		{Algorithm: "RingSkip", Processes: 4, Crashed: []election.ID{2, 3}, Initiators: []election.ID{4}, Latency: 1000, Safety: "Majority"},
		{Algorithm: "Bully", Processes: 9, Crashed: []election.ID{2, 3, 6, 7, 8}, Initiators: []election.ID{4, 9}, Latency: 1000, Safety: "Majority"},
	} {
		o, err := sim.Run(s)
		if err != nil {
			t.Fatal(err)
		}
		tables := tablesOf(&o)
		for i, table := range tables {
			for _, other := range tables[:i] {
				if slices.Equal(table.rows, other.rows) {
					t.Errorf("%s: two tables are alike", s.Describe())
				}
			}
		}
		for _, v := range o.Views {
			holds := slices.IndexFunc(tables, func(table heldTable) bool { return slices.Contains(table.by, v.Process) })
			switch {
			case v.Down != (holds < 0):
				t.Errorf("%s: %d holds table %d", s.Describe(), v.Process, holds)
			case !v.Down && !slices.Equal(tables[holds].rows, v.Rows()):
				t.Errorf("%s: %d is shown a table that isn't its own", s.Describe(), v.Process)
			}
		}
	}
}

func TestTablesAreGatheredByStateAndByRows(t *testing.T) {
	g := gathering{byState: map[string]int{}, byRows: map[string]int{}}
	calls := 0
	for i, state := range []string{"a", "b", "b", "c", "a", "b"} {
		g.add(election.ID(i+1), []byte(state), func() []election.Row {
			calls++
			crashed := map[string]election.ID{"a": 1, "b": 2, "c": 1}[state]
			return made(3, 3, nil, crashed).rows
		})
	}
	if calls != 3 {
		t.Errorf("rows were asked for %d times, want 3", calls)
	}
	if len(g.tables) != 2 || !slices.Equal(g.tables[0].by, []election.ID{1, 4, 5}) || !slices.Equal(g.tables[1].by, []election.ID{2, 3, 6}) {
		t.Errorf("gathered %v", g.tables)
	}
}
