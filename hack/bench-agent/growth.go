package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// growth says how a duration depends on the number of agents n: about as n to the power of
// the exponent. A straight line is fitted to the logarithms of the medians.
type growth struct {
	what, mode string
	agents     []int
	medians    []float64
}

// growthOf returns the growth of failovers, floors and hand-overs in each mode that was
// measured with several sizes.
func growthOf(groups []*Group) []growth {
	var all []growth
	for _, measured := range []struct {
		what   string
		series func(*Group) *benchmark.Series
	}{
		{"failover", func(g *Group) *benchmark.Series { return g.Kills }},
		{"floor", func(g *Group) *benchmark.Series {
			if !g.hasOwnFloor() {
				return nil
			}
			return g.Floor
		}},
		{"hand-over", func(g *Group) *benchmark.Series { return g.HandOvers }},
	} {
		byMode := map[string]int{}
		for _, g := range groups {
			series := measured.series(g)
			if series == nil {
				continue
			}
			i, known := byMode[g.Mode]
			if !known {
				i = len(all)
				byMode[g.Mode] = i
				all = append(all, growth{what: measured.what, mode: g.Mode})
			}
			all[i].agents, all[i].medians = append(all[i].agents, g.Agents), append(all[i].medians, series.Median)
		}
	}
	return all
}

// exponent is the slope of the line that has the least squares. It isn't a number if
// all groups have the same size.
func (g *growth) exponent() float64 {
	count := float64(len(g.agents))
	var sumX, sumY, sumXX, sumXY float64
	for i := range g.agents {
		x, y := math.Log(float64(g.agents[i])), math.Log(g.medians[i])
		sumX, sumY, sumXX, sumXY = sumX+x, sumY+y, sumXX+x*x, sumXY+x*y
	}
	return (count*sumXY - sumX*sumY) / (count*sumXX - sumX*sumX)
}

func printGrowth(out io.Writer, groups []*Group) {
	for _, g := range growthOf(groups) {
		exponent := g.exponent()
		if math.IsNaN(exponent) || math.IsInf(exponent, 0) {
			continue
		}
		points := make([]string, len(g.agents))
		for i := range g.agents {
			points[i] = fmt.Sprintf("%d: %.2f", g.agents[i], g.medians[i])
		}
		fmt.Fprintf(out, "%s, %s: median in ms by agents (%s) grows as n^%.2f\n", g.mode, g.what, strings.Join(points, ", "), exponent)
	}
}
