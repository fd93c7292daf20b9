package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Histogram shows how long the group was without a coordinator at each failover.
type Histogram struct {
	Buckets []Bucket `json:"buckets"`
	// Text has the number of failovers, the median and the longest, also of those after a failure.
	Text string `json:"text"`
}

// Bucket counts the failovers of up to a duration, and above that of the bucket before.
type Bucket struct {
	UpTo  string `json:"upTo"`
	Count int    `json:"count"`
}

// bounds are the upper bounds of the buckets; the last bucket has none.
var bounds = []time.Duration{
	time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond,
	300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second,
}

// newHistogram returns nil if no failover was measured.
func newHistogram(history []v1.Tenure) *Histogram {
	var gaps, afterFailures []time.Duration
	for i := range history {
		gap, known := history[i].Gap()
		if !known {
			continue
		}
		gaps = append(gaps, gap)
		if i+1 < len(history) && history[i+1].EndedByFailure() {
			afterFailures = append(afterFailures, gap)
		}
	}
	if len(gaps) == 0 {
		return nil
	}
	h := &Histogram{}
	for _, bound := range bounds {
		h.Buckets = append(h.Buckets, Bucket{UpTo: formatBound(bound)})
	}
	h.Buckets = append(h.Buckets, Bucket{UpTo: "more"})
	for _, gap := range gaps {
		i, _ := slices.BinarySearch(bounds, gap)
		h.Buckets[i].Count++
	}
	h.Text = summarize(gaps, "failover", "failovers")
	if n := len(afterFailures); n > 0 && n < len(gaps) {
		h.Text += "; " + summarize(afterFailures, "after a failure", "after failures")
	}
	return h
}

// summarize returns the number of gaps, their median and the longest. It sorts them.
func summarize(gaps []time.Duration, one, several string) string {
	slices.Sort(gaps)
	longest := v1.FormatGap(gaps[len(gaps)-1])
	if len(gaps) == 1 {
		return fmt.Sprintf("1 %s: %s", one, longest)
	}
	return fmt.Sprintf("%d %s: median %s, longest %s", len(gaps), several, v1.FormatGap(gaps[len(gaps)/2]), longest)
}

func formatBound(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprint(d.Milliseconds(), " ms")
	}
	return fmt.Sprint(int(d.Seconds()), " s")
}

// describePicture describes the picture of the members for screen readers.
func describePicture(d *Detail) string {
	shape := "Each member is connected to each other"
	if d.Ring {
		shape = "The members form a ring"
	}
	parts := []string{fmt.Sprintf("%s. %d of %d members are up.", shape, d.Up, d.Members)}
	if d.Coordinator == "" {
		parts = append(parts, "There is no coordinator.")
	} else {
		parts = append(parts, d.Coordinator+" is the coordinator.")
	}
	for _, n := range d.Nodes {
		if n.Status == v1.ProcessCrashed || n.Status == v1.ProcessUnknown {
			parts = append(parts, fmt.Sprintf("%s is %s.", n.Pod, strings.ToLower(string(n.Status))))
		}
	}
	return strings.Join(parts, " ")
}
