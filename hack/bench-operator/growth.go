package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// printGrowth prints how the results grow with the number of groups: the exponent of the power law that fits best.
func printGrowth(out io.Writer, all []*Scale) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "groups")
	var groups []float64
	for _, s := range all {
		groups = append(groups, float64(s.Groups))
		fmt.Fprintf(table, "\t%d", s.Groups)
	}
	fmt.Fprintln(table, "\texponent")
	for _, q := range []struct {
		name, format string
		of           func(*Scale) float64
	}{
		{"memory beyond that without groups, MiB", "%.1f", func(s *Scale) float64 { return s.Resident - s.Empty }},
		{"start until every status complete, s", "%.2f", func(s *Scale) float64 { return s.Start }},
		{"restart until all agents connected, s", "%.2f", func(s *Scale) float64 { return s.Restart.Connected }},
		{"report until status visible, median, ms", "%.1f", func(s *Scale) float64 { return lag(s).Median }},
		{"report until status visible, p99, ms", "%.1f", func(s *Scale) float64 { return lag(s).P99 }},
	} {
		fmt.Fprint(table, q.name)
		var values []float64
		for _, s := range all {
			values = append(values, q.of(s))
			fmt.Fprintf(table, "\t"+q.format, q.of(s))
		}
		exponent := "-"
		if e := benchmark.Exponent(groups, values); !math.IsNaN(e) {
			exponent = fmt.Sprintf("%.2f", e)
		}
		fmt.Fprintf(table, "\t%s\n", exponent)
	}
	return table.Flush()
}

func lag(s *Scale) benchmark.Series {
	if s.Elections == nil || s.Elections.Lag == nil {
		return benchmark.Series{}
	}
	return *s.Elections.Lag
}
