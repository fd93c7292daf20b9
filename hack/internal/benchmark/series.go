// Package benchmark is what the benchmarks measure, and how they say it.
package benchmark

import (
	"slices"
	"time"
)

// Series is what a number of rounds took, in milliseconds.
type Series struct {
	Rounds int     `json:"rounds"`
	Median float64 `json:"medianMillis"`
	P99    float64 `json:"p99Millis"`
	Max    float64 `json:"maxMillis"`
	// All rounds, in the order in which they were.
	All []float64 `json:"allMillis"`
}

// NewSeries is nil if there was no round.
func NewSeries(rounds []time.Duration) *Series {
	if len(rounds) == 0 {
		return nil
	}
	s := &Series{Rounds: len(rounds)}
	for _, round := range rounds {
		s.All = append(s.All, Millis(round))
	}
	sorted := slices.Sorted(slices.Values(s.All))
	s.Median, s.P99, s.Max = Rank(sorted, 50), Rank(sorted, 99), sorted[len(sorted)-1]
	return s
}

// Rank returns the smallest value that so many percent don't exceed. Of 20
// rounds, the 99th percentile is the longest.
func Rank(sorted []float64, percent int) float64 {
	return sorted[(len(sorted)*percent+99)/100-1]
}

// Millis is a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
