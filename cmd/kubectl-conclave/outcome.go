package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/sim"
)

// countsJSON is an object with the messages of each kind in the order of the
// kinds; encoding/json would sort a map by its keys.
func countsJSON(o *sim.Outcome) json.RawMessage {
	var fields []string
	for _, c := range o.Counts() {
		fields = append(fields, fmt.Sprintf("%q:%d", c.Kind, c.Count))
	}
	return json.RawMessage("{" + strings.Join(fields, ",") + "}")
}

func writeOutcomeJSON(w io.Writer, o *sim.Outcome) error {
	return json.NewEncoder(w).Encode(struct {
		Algorithm     string          `json:"algorithm"`
		Processes     int             `json:"processes"`
		Coordinator   election.ID     `json:"coordinator"`
		Agreed        bool            `json:"agreed"`
		Total         int             `json:"total"`
		Skipped       int             `json:"skipped"`
		ElapsedMillis float64         `json:"elapsedMillis"`
		Messages      json.RawMessage `json:"messages"`
	}{
		o.Algorithm, o.Processes, o.Coordinator, o.Agreed, o.Total, o.Skipped, sim.Millis(o.Elapsed), countsJSON(o),
	})
}

// countsLine says how many messages there were.
func countsLine(o *sim.Outcome) string {
	var kinds []string
	for _, c := range o.Counts() {
		kinds = append(kinds, fmt.Sprintf("%d %s", c.Count, c.Kind))
	}
	line := fmt.Sprintf("%d messages", o.Total)
	if o.Total == 1 {
		line = "1 message"
	}
	if len(kinds) > 0 {
		line += ": " + strings.Join(kinds, ", ")
	}
	if o.Skipped > 0 {
		line += fmt.Sprintf("; besides, %d sent to successors that don't respond", o.Skipped)
	}
	return line
}

func writeOutcomeTable(w io.Writer, s *sim.Scenario, o *sim.Outcome, chosen bool) {
	fmt.Fprintln(w, s.Describe())
	if chosen {
		fmt.Fprintln(w, "(nothing else was asked for: choose with --crashed, --initiators or --recover)")
	}
	fmt.Fprintln(w)
	facts := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(facts, "OUTCOME\t%s\n", o.Describe())
	fmt.Fprintf(facts, "COST\t%s\n", countsLine(o))
	fmt.Fprintf(facts, "TIME\t%.3f ms\n", sim.Millis(o.Elapsed))
	facts.Flush() //nolint:errcheck // as with fmt.Fprint: nobody is left to be told
	fmt.Fprintln(w)
	writeStatusTables(w, s, tablesOf(o))
}

// heldTable is a process status table, with all that hold just this one.
type heldTable struct {
	rows []election.Row
	by   []election.ID
}

// gathering finds out who holds equal tables.
type gathering struct {
	tables  []heldTable
	byState map[string]int
	byRows  map[string]int
}

// tablesOf are the different status tables in an outcome.
func tablesOf(o *sim.Outcome) []heldTable {
	g := gathering{byState: map[string]int{}, byRows: map[string]int{}}
	var state []byte
	for _, v := range o.Views {
		if !v.Down {
			state = v.AppendState(state[:0])
			g.add(v.Process, state, v.Rows)
		}
	}
	return g.tables
}

// add puts a process to those that hold its table. Equal states have equal
// tables, so rows, which takes long, is rarely called; different states often
// have equal tables, too.
func (g *gathering) add(id election.ID, state []byte, rows func() []election.Row) {
	i, seen := g.byState[string(state)]
	if !seen {
		i = g.find(rows())
		g.byState[string(state)] = i
	}
	g.tables[i].by = append(g.tables[i].by, id)
}

// find is the place of the table with these rows.
func (g *gathering) find(rows []election.Row) int {
	key := make([]byte, len(rows))
	for i, r := range rows {
		key[i] = byte(r.Status)
	}
	i, seen := g.byRows[string(key)]
	if !seen {
		i = len(g.tables)
		g.tables = append(g.tables, heldTable{rows: rows})
		g.byRows[string(key)] = i
	}
	return i
}

// What a terminal shows well.
const (
	// shownTables is how many tables stand side by side.
	shownTables = 6
	// shownRows is how many rows are written one by one; of more, rows that are
	// alike are written as one.
	shownRows = 30
	// shownSpans is how many of those are written.
	shownSpans = 40
)

// writeStatusTables writes each table that somebody holds once: a column for
// each table, a row for each process.
func writeStatusTables(w io.Writer, s *sim.Scenario, tables []heldTable) {
	everyone := len(tables) == 1
	shown := tables
	if s.Processes > shownRows {
		shown = tables[:min(len(tables), shownTables)]
	}
	for block := range slices.Chunk(shown, shownTables) {
		if everyone {
			fmt.Fprintf(w, "Process status table of %s:\n\n", holders(block[0]))
		} else {
			fmt.Fprint(w, "Process status tables, by who holds them:\n\n")
		}
		writeBlock(w, block, everyone)
		fmt.Fprintln(w)
	}
	if left := len(tables) - len(shown); left > 0 {
		fmt.Fprintf(w, "%d more tables, different from these, are left out.\n", left)
	}
	if len(s.Crashed) > 0 {
		fmt.Fprintf(w, "Down, and without a table: %s.\n", sim.FormatRanges(s.Crashed))
	}
}

// holders names those that hold a table.
func holders(t heldTable) string { return sim.FormatRanges(t.by) }

func writeBlock(w io.Writer, tables []heldTable, everyone bool) {
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprint(columns, "PROCESS")
	for _, t := range tables {
		if everyone {
			fmt.Fprint(columns, "\tSTATUS")
		} else {
			fmt.Fprintf(columns, "\tOF %s", holders(t))
		}
	}
	fmt.Fprintln(columns)
	rows := len(tables[0].rows)
	written := 0
	for from := 0; from < rows; written++ {
		if written == shownSpans {
			fmt.Fprintf(columns, "...\tand %d more processes\n", rows-from)
			break
		}
		to := from + 1
		for rows > shownRows && to < rows && alike(tables, from, to) {
			to++
		}
		writeRow(columns, tables, from, to)
		from = to
	}
	columns.Flush() //nolint:errcheck // as with fmt.Fprint: nobody is left to be told
}

// writeRow writes the rows from one place to before another, which are alike.
func writeRow(w io.Writer, tables []heldTable, from, to int) {
	highest, lowest := tables[0].rows[from].Priority, tables[0].rows[to-1].Priority
	if highest == lowest {
		fmt.Fprint(w, highest)
	} else {
		fmt.Fprintf(w, "%d-%d", lowest, highest)
	}
	for _, t := range tables {
		fmt.Fprintf(w, "\t%s", t.rows[from].Status)
	}
	fmt.Fprintln(w)
}

// alike reports whether two rows say the same in every table.
func alike(tables []heldTable, a, b int) bool {
	for _, t := range tables {
		if t.rows[a].Status != t.rows[b].Status {
			return false
		}
	}
	return true
}
