package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/conclave-dev/conclave/internal/diagram"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/sim"
)

// countsJSON encodes the number of messages of each kind in the order of the kinds;
// encoding/json would sort a map by its keys.
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
		o.Algorithm, o.Processes, o.Coordinator, o.Agreed, o.Total, o.Skipped, diagram.Millis(o.Elapsed), countsJSON(o),
	})
}

// countsLine describes the number of messages.
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

func writeOutcomeTable(w io.Writer, s *sim.Scenario, o *sim.Outcome, isDefault bool) {
	fmt.Fprintln(w, s.Describe())
	if isDefault {
		fmt.Fprintln(w, "(default scenario; to choose another, use --crashed, --initiators or --recover)")
	}
	fmt.Fprintln(w)
	facts := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(facts, "OUTCOME\t%s\n", o.Describe())
	fmt.Fprintf(facts, "COST\t%s\n", countsLine(o))
	fmt.Fprintf(facts, "TIME\t%.3f ms\n", diagram.Millis(o.Elapsed))
	facts.Flush() //nolint:errcheck // as with fmt.Fprint: there is no caller to return it to
	fmt.Fprintln(w)
	writeStatusTables(w, s, distinctTables(o))
}

// sharedTable is a process status table, and the processes that have it.
type sharedTable struct {
	rows    []election.Row
	holders []election.ID
}

// tableGroups groups processes by equal tables. The maps lead to indexes of tables.
type tableGroups struct {
	tables  []sharedTable
	byState map[string]int
	byRows  map[string]int
}

func newTableGroups() tableGroups {
	return tableGroups{byState: map[string]int{}, byRows: map[string]int{}}
}

// distinctTables returns the distinct status tables of an outcome.
func distinctTables(o *sim.Outcome) []sharedTable {
	g := newTableGroups()
	var state []byte
	for _, v := range o.Views {
		if !v.Down {
			state = v.AppendState(state[:0])
			g.add(v.Process, state, v.Rows)
		}
	}
	return g.tables
}

// add adds a process to the holders of its table. Equal states have equal tables,
// so that rows, which is slow, is rarely called. Different states often have equal
// tables, too.
func (g *tableGroups) add(id election.ID, state []byte, rows func() []election.Row) {
	i, known := g.byState[string(state)]
	if !known {
		i = g.index(rows())
		g.byState[string(state)] = i
	}
	g.tables[i].holders = append(g.tables[i].holders, id)
}

// index returns the index of the table with these rows, which it adds if it is new.
func (g *tableGroups) index(rows []election.Row) int {
	key := make([]byte, len(rows))
	for i, r := range rows {
		key[i] = byte(r.Status)
	}
	i, known := g.byRows[string(key)]
	if !known {
		i = len(g.tables)
		g.tables = append(g.tables, sharedTable{rows: rows})
		g.byRows[string(key)] = i
	}
	return i
}

// Limits of what a terminal shows well.
const (
	// tablesPerBlock is the number of tables side by side.
	tablesPerBlock = 6
	// singleRows is the number of processes up to which each has a row. With more
	// processes, adjacent equal rows are merged.
	singleRows = 30
	// maxMergedRows limits the number of rows after merging.
	maxMergedRows = 40
)

// writeStatusTables writes each distinct table once: a column for each table, a
// row for each process.
func writeStatusTables(w io.Writer, s *sim.Scenario, tables []sharedTable) {
	allEqual := len(tables) == 1
	shown := tables
	if s.Processes > singleRows {
		shown = tables[:min(len(tables), tablesPerBlock)]
	}
	for block := range slices.Chunk(shown, tablesPerBlock) {
		if allEqual {
			fmt.Fprintf(w, "Process status table of %s:\n\n", sim.FormatRanges(block[0].holders))
		} else {
			fmt.Fprint(w, "Process status tables, by the processes that have them:\n\n")
		}
		writeBlock(w, block, allEqual)
		fmt.Fprintln(w)
	}
	if omitted := len(tables) - len(shown); omitted > 0 {
		fmt.Fprintf(w, "%d more tables, different from these, are not shown.\n", omitted)
	}
	if len(s.Crashed) > 0 {
		fmt.Fprintf(w, "Down, without a table: %s.\n", sim.FormatRanges(s.Crashed))
	}
}

func writeBlock(w io.Writer, tables []sharedTable, allEqual bool) {
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprint(columns, "PROCESS")
	for _, t := range tables {
		if allEqual {
			fmt.Fprint(columns, "\tSTATUS")
		} else {
			fmt.Fprintf(columns, "\tOF %s", sim.FormatRanges(t.holders))
		}
	}
	fmt.Fprintln(columns)
	rows := len(tables[0].rows)
	written := 0
	for from := 0; from < rows; written++ {
		if written == maxMergedRows {
			fmt.Fprintf(columns, "...\tand %d more processes\n", rows-from)
			break
		}
		to := from + 1
		for rows > singleRows && to < rows && equalRows(tables, from, to) {
			to++
		}
		writeRow(columns, tables, from, to)
		from = to
	}
	columns.Flush() //nolint:errcheck // as with fmt.Fprint: there is no caller to return it to
}

// writeRow writes the rows in [from, to), which are equal, as one.
func writeRow(w io.Writer, tables []sharedTable, from, to int) {
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

// equalRows reports whether two rows have the same status in every table.
func equalRows(tables []sharedTable, a, b int) bool {
	for _, t := range tables {
		if t.rows[a].Status != t.rows[b].Status {
			return false
		}
	}
	return true
}
