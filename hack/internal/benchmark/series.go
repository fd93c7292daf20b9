// Package benchmark has the statistics, process measurements and report formats that the
// benchmarks share.
package benchmark

import (
	"slices"
	"time"
)

// Series contains the durations of the rounds of a measurement, in milliseconds.
type Series struct {
	Rounds int     `json:"rounds"`
	Median float64 `json:"medianMillis"`
	P99    float64 `json:"p99Millis"`
	Max    float64 `json:"maxMillis"`
	// All contains the durations of all rounds, in order.
	All []float64 `json:"allMillis"`
}

// NewSeries returns the statistics of some rounds, or nil if there were none.
func NewSeries(rounds []time.Duration) *Series {
	if len(rounds) == 0 {
		return nil
	}
	s := &Series{Rounds: len(rounds)}
	for _, round := range rounds {
		s.All = append(s.All, Millis(round))
	}
	sorted := slices.Sorted(slices.Values(s.All))
	s.Median, s.P99, s.Max = Percentile(sorted, 50), Percentile(sorted, 99), sorted[len(sorted)-1]
	return s
}

// Percentile returns the nearest-rank percentile of sorted values. Of 20 rounds, the
// 99th percentile is the maximum.
func Percentile(sorted []float64, percent int) float64 {
	return sorted[(len(sorted)*percent+99)/100-1]
}

// Millis converts a duration to milliseconds.
func Millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
