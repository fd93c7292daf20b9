package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/conclave-dev/conclave/hack/compare/barchart"
)

// failoverChart shows the time until all survivors know the next leader, after some faults.
func failoverChart(failovers []Failover, shown []fault) string {
	c := barchart.Chart{
		Title: "The leader is taken away: time until all survivors know the next one",
		Note:  fmt.Sprintf("%d candidates on one machine. Bars: median. Lines: to the 99th percentile.", candidates),
		From:  0.1, To: 100_000, Format: duration,
	}
	if len(shown) == 1 {
		c.Title = "The leader is " + strings.Split(shown[0].title,
			":")[0] + " (" + shown[0].name + "): time until all survivors know the next one"
	}
	for _, f := range shown {
		c.Kinds = append(c.Kinds, f.name+" ("+strings.Split(f.title, ":")[0]+")")
	}
	for _, f := range failovers {
		kind := slices.IndexFunc(shown, func(s fault) bool { return s.name == f.Fault })
		switch {
		case kind < 0:
		case f.Took == nil:
			c.Bars = append(c.Bars, barchart.Bar{Label: titleOf(f.System), Text: "not within " + duration(f.Limit)})
		default:
			c.Bars = append(c.Bars, barchart.Bar{Label: titleOf(f.System), Kind: kind, Value: f.Took.Median, End: f.Took.P99})
		}
	}
	return c.SVG()
}

// idleChart shows the processor time of idle candidates, by their groups.
func idleChart(idle []Idle) string {
	c := barchart.Chart{
		Title: "Nothing happens: processor time of a candidate",
		Note:  "In percent of a core, with all processes of the candidate.",
		From:  0.001, To: 100, Format: func(percent float64) string {
			return strconv.FormatFloat(percent, 'f', max(0, 1-int(math.Floor(math.Log10(percent)))), 64) + " %"
		},
	}
	var groups []int
	for _, i := range idle {
		if !slices.Contains(groups, i.Groups) {
			groups = append(groups, i.Groups)
		}
	}
	slices.Sort(groups)
	for _, number := range groups {
		c.Kinds = append(c.Kinds, fmt.Sprintf("groups: %d", number))
	}
	for _, i := range idle {
		c.Bars = append(c.Bars, barchart.Bar{Label: titleOf(i.System), Kind: slices.Index(groups, i.Groups), Value: i.CPU})
	}
	return c.SVG()
}
