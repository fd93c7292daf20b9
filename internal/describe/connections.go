package describe

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Connections are those that the agent in a pod carries. If they aren't known, Missing says why.
type Connections struct {
	Pod string `json:"pod"`
	*control.Connections

	Missing string `json:"missing,omitempty"`
}

// WriteConnections writes a table of the connections that the agents of a group carry.
func WriteConnections(w io.Writer, rows []Connections) {
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "CONNECTIONS AT\tOPEN\tWAITING\tWAITED IN VAIN\tRESET\tREFUSED\tFAILED DIALS")
	for _, row := range rows {
		if c := row.Connections; c != nil {
			fmt.Fprintf(columns, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n",
				row.Pod, c.Open, c.Waiting, c.WaitedInVain, c.Reset, c.Refused, c.FailedDials)
		} else {
			fmt.Fprintf(columns, "%s\t%s\n", row.Pod, row.Missing)
		}
	}
	flushColumns(w, columns, &text)
}
