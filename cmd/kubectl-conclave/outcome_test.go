package main

import (
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
func TestEqualTablesAreOne(t *testing.T) {
	for _, args := range []sim.Scenario{
		{Algorithm: "Bully", Processes: 9, Crashed: []election.ID{9}, Initiators: []election.ID{1, 5}, Latency: 1000},
		{Algorithm: "StatusTable", Processes: 9, Initiators: []election.ID{9}, Latency: 1000, Safety: "Majority"},
	} {
		o, err := sim.Run(args)
		if err != nil {
			t.Fatal(err)
		}
		distinct := map[string]bool{}
		for _, v := range o.Views {
			if v.Down {
				continue
			}
			var b strings.Builder
			for _, r := range v.Rows() {
				b.WriteString(r.Status.String())
			}
			distinct[b.String()] = true
		}
		if tables := tablesOf(&o); len(tables) != len(distinct) {
			t.Errorf("%s: %d tables, want %d", args.Describe(), len(tables), len(distinct))
		}
	}
}
