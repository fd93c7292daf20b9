package simulate

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/transcript"
)

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
	fmt.Fprintf(facts, "TIME\t%.3f ms\n", transcript.Millis(o.Elapsed))
	facts.Flush() //nolint:errcheck // as with fmt.Fprint: there is no caller to return it to
	if s.Processes <= maxRows {
		fmt.Fprintln(w)
		writeStatusTables(w, s, distinctTables(o))
	}
}

// sharedTable is a process status table, and the processes that have it.
type sharedTable struct {
	rows    []election.Row
	holders []election.ID
}

// distinctTables returns the distinct status tables of an outcome.
func distinctTables(o *sim.Outcome) []sharedTable {
	var tables []sharedTable
	for _, v := range o.Views {
		if v.Down {
			continue
		}
		rows := v.Rows()
		i := slices.IndexFunc(tables, func(t sharedTable) bool { return slices.Equal(t.rows, rows) })
		if i < 0 {
			i = len(tables)
			tables = append(tables, sharedTable{rows: rows})
		}
		tables[i].holders = append(tables[i].holders, v.Process)
	}
	return tables
}

// Limits of what a terminal shows well.
const (
	// tablesPerBlock is the number of tables side by side.
	tablesPerBlock = 6
	// maxRows is the number of processes up to which the output has their tables.
	maxRows = 30
)

// writeStatusTables writes each distinct table once: a column for each table, a row for each process.
func writeStatusTables(w io.Writer, s *sim.Scenario, tables []sharedTable) {
	allEqual := len(tables) == 1
	for block := range slices.Chunk(tables, tablesPerBlock) {
		if allEqual {
			fmt.Fprintf(w, "Process status table of %s:\n\n", sim.FormatRanges(block[0].holders))
		} else {
			fmt.Fprint(w, "Process status tables, by the processes that have them:\n\n")
		}
		writeBlock(w, block, allEqual)
		fmt.Fprintln(w)
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
	for i, row := range tables[0].rows {
		fmt.Fprint(columns, row.Priority)
		for _, t := range tables {
			fmt.Fprintf(columns, "\t%s", t.rows[i].Status)
		}
		fmt.Fprintln(columns)
	}
	columns.Flush() //nolint:errcheck // as with fmt.Fprint: there is no caller to return it to
}
