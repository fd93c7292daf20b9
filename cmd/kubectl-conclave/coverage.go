package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/conclave-dev/conclave/internal/sim"
)

// coverage is a sim.Combination in the JSON output.
type coverage struct {
	Fault string `json:"fault"`
	Role  string `json:"role"`
	List  string `json:"list"`
	Count uint64 `json:"count"`
}

func coverageOf(combinations []sim.Combination) []coverage {
	all := make([]coverage, 0, len(combinations))
	for _, c := range combinations {
		all = append(all, coverage(c))
	}
	return all
}

// writeCoverage writes a table with a line for each fault and a column for each role.
// A cell has one number for each phase of a change of the member list.
func writeCoverage(w io.Writer, combinations []sim.Combination) {
	if len(combinations) == 0 {
		return
	}
	var faults, roles []string
	cells := map[[2]string][]string{}
	for _, c := range combinations {
		if !slices.Contains(faults, c.Fault) {
			faults = append(faults, c.Fault)
		}
		if !slices.Contains(roles, c.Role) {
			roles = append(roles, c.Role)
		}
		at := [2]string{c.Fault, c.Role}
		cells[at] = append(cells[at], fmt.Sprint(c.Count))
	}
	fmt.Fprintln(w, "\nProcesses affected by each fault, by role: member list settled / latest one unknown / adopted")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "FAULT\t%s\n", strings.ToUpper(strings.Join(roles, "\t")))
	for _, fault := range faults {
		fmt.Fprint(table, fault)
		for _, role := range roles {
			fmt.Fprint(table, "\t", strings.Join(cells[[2]string{fault, role}], "/"))
		}
		fmt.Fprintln(table)
	}
	table.Flush() //nolint:errcheck // as with fmt.Fprint: there is no caller to return it to
}
