// Package transitions reads the table of transitions in the package comment of
// office, so that tests can compare it with the transitions that happen.
package transitions

import (
	"fmt"
	"strings"

	"github.com/conclave-dev/conclave/internal/election/office"
)

// Row is a row of the table, for one of its causes.
type Row struct{ From, To, Cause string }

// Of returns the row that a transition belongs to.
func Of(t office.Transition) Row { return Row{t.From.String(), t.To.String(), t.Cause} }

// Parse returns the rows of the table in a source text.
func Parse(source string) (map[Row]bool, error) {
	rows := map[Row]bool{}
	for line := range strings.Lines(source) {
		cells := strings.Split(strings.TrimPrefix(strings.TrimSpace(line), "//"), "|")
		if from := strings.TrimSpace(cells[0]); len(cells) != 4 || from == "from" || from == "" {
			continue // A row whose first cell is empty continues the one above.
		}
		for cause := range strings.SplitSeq(cells[2], ",") {
			row := Row{strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cause)}
			if rows[row] {
				return nil, fmt.Errorf("the table of transitions has %v twice", row)
			}
			rows[row] = true
		}
	}
	return rows, nil
}
