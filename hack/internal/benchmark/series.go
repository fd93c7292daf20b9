// Package benchmark has the statistics, process measurements and reports that the benchmarks share.
package benchmark

import (
	"slices"
	"time"
)

// Series contains statistics of the rounds of a measurement, in milliseconds.
type Series struct {
	Rounds           int
	Median, P99, Max float64
}

// NewSeries returns the statistics of some rounds, or nil if there were none.
func NewSeries(rounds []time.Duration) *Series {
	if len(rounds) == 0 {
		return nil
	}
	sorted := make([]float64, len(rounds))
	for i, round := range rounds {
		sorted[i] = Millis(round)
	}
	slices.Sort(sorted)
	return &Series{
		Rounds: len(rounds), Median: Percentile(sorted, 50), P99: Percentile(sorted, 99), Max: sorted[len(sorted)-1],
	}
}

// Percentile returns the nearest-rank percentile of sorted values. Of 20 rounds, the 99th percentile is the maximum.
func Percentile(sorted []float64, percent int) float64 {
	return sorted[(len(sorted)*percent+99)/100-1]
}

// Millis converts a duration to milliseconds.
func Millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
