package traffic

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Cells are those of a table for some rounds: of both clients, the longest times without an answer, how many of them no
// answer ended, and the numbers of requests that failed, and that waited.
func Cells(rounds []Clients) string {
	var cells []string
	for client := range 2 {
		var gaps, failed, waited []float64
		open := 0
		for i := range rounds {
			s := []*Seen{&rounds[i].New, &rounds[i].Kept}[client]
			gaps, failed, waited = append(gaps, s.Gap), append(failed, float64(s.Failed)), append(waited, float64(s.Waited))
			if s.Open {
				open++
			}
		}
		gap := spread(gaps)
		if open > 0 {
			gap += fmt.Sprintf(" (%d open)", open)
		}
		cells = append(cells, gap, spread(failed), spread(waited))
	}
	return strings.Join(cells, "|")
}

// spread returns the median, the 99th percentile if there are enough values, and the maximum.
func spread(values []float64) string {
	slices.Sort(values)
	quantiles := []float64{0.5, 0.99, 1}
	if len(values) < 100 {
		quantiles = []float64{0.5, 1}
	}
	var words []string
	for _, q := range quantiles {
		words = append(words, fmt.Sprintf("%.0f", values[max(0, int(math.Ceil(q*float64(len(values))))-1)]))
	}
	return strings.Join(words, "/")
}
