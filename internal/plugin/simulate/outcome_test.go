package simulate

import (
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// newTable returns a table of n rows with these crashed processes.
func newTable(n, coordinator election.ID, holders []election.ID, crashed ...election.ID) sharedTable {
	t := sharedTable{holders: holders}
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

func TestDifferentTablesAreSideBySide(t *testing.T) {
	var b strings.Builder
	writeStatusTables(&b, &sim.Scenario{Processes: 4, Crashed: []election.ID{4}}, []sharedTable{
		newTable(4, 3, []election.ID{1, 3}, 4), newTable(4, 0, []election.ID{2}, 4, 3),
	})
	golden.Compare(t, "testdata/different-tables.txt", b.String())
}

func TestEveryTableOfFewProcessesIsShown(t *testing.T) {
	var tables []sharedTable
	for id := election.ID(1); id <= 13; id++ {
		tables = append(tables, newTable(14, 14, []election.ID{id}, id))
	}
	var b strings.Builder
	writeStatusTables(&b, &sim.Scenario{Processes: 14}, tables)
	for _, want := range []string{"OF 1 ", "OF 7 ", "OF 13\n"} {
		expect.Containsf(t, b.String(), want, "columns")
	}
}

// Processes in different states may have equal tables, which are grouped.
func TestDistinctTablesAreThoseOfTheirHolders(t *testing.T) {
	for _, s := range []sim.Scenario{
		{Algorithm: "Bully", Processes: 9, Crashed: []election.ID{9}, Initiators: []election.ID{1, 5}, Latency: 1000},
		{Algorithm: "StatusTable", Processes: 9, Initiators: []election.ID{9}, Latency: 1000, Safety: "Majority"},
		{
			Algorithm: "RingSkip", Processes: 4, Crashed: []election.ID{2, 3}, Initiators: []election.ID{4},
			Latency: 1000, Safety: "Majority",
		},
		{
			Algorithm: "Bully", Processes: 9, Crashed: []election.ID{2, 3, 6, 7, 8}, Initiators: []election.ID{4, 9},
			Latency: 1000, Safety: "Majority",
		},
	} {
		o, err := sim.Run(s)
		must.Succeed(t, err)
		tables := distinctTables(&o)
		for i, table := range tables {
			for _, other := range tables[:i] {
				if slices.Equal(table.rows, other.rows) {
					t.Errorf("%s: got two equal tables, want distinct ones", s.Describe())
				}
			}
		}
		for _, v := range o.Views {
			index := slices.IndexFunc(tables, func(table sharedTable) bool { return slices.Contains(table.holders, v.Process) })
			switch {
			case v.Down != (index < 0):
				t.Errorf("%s: process %d: got table %d, want one only if it is up", s.Describe(), v.Process, index)
			case !v.Down && !slices.Equal(tables[index].rows, v.Rows()):
				t.Errorf("%s: process %d: got the table of another process", s.Describe(), v.Process)
			}
		}
	}
}
