package simulate

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/sim"
)

// writeOutages writes how long there was no coordinator after each kind of fault.
func writeOutages(w io.Writer, outages []sim.Outage) {
	if len(outages) == 0 {
		return
	}
	fmt.Fprint(w, "\nTime without a coordinator after a fault, in leases, and in milliseconds with the default lease:\n\n")
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(columns, "AFTER\tCOUNT\tP50\tP99\tMAX\t")
	cell := func(t election.Tick) string {
		return fmt.Sprintf("%.2f (%.0f ms)", sim.InLeases(t), sim.DefaultMillis(t))
	}
	for _, o := range outages {
		fmt.Fprintf(columns, "%s\t%d\t%s\t%s\t%s\t\n", o.Kind, o.Count, cell(o.P50), cell(o.P99), cell(o.Max))
	}
	columns.Flush() //nolint:errcheck // as with fmt.Fprint: there is no caller to return it to
}
