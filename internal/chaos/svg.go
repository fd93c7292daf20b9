package chaos

import (
	"fmt"
	"io"
	"strings"

	"github.com/conclave-dev/conclave/internal/barchart"
)

// WriteSVG draws the times until another process was elected, and until everything had settled.
func (r *Result) WriteSVG(w io.Writer) error {
	title, details := r.about()
	c := barchart.Chart{
		Title: "Time without a leader: " + title,
		Note:  strings.Join(details, "; ") + ". Bars: median. Lines: to the maximum.",
		Kinds: []string{"until another process is elected", "until everything agrees again"},
		From:  1, To: 100_000, Format: milliseconds,
	}
	if r.ObservedMillis > 0 {
		c.Kinds = c.Kinds[:1]
	}
	for i := range r.Summary {
		s := &r.Summary[i]
		label := fmt.Sprintf("%s (%d)", s.Kind, s.Count)
		if s.Elected == nil {
			c.Bars = append(c.Bars, barchart.Bar{Label: label, Text: "nobody else was elected"})
		}
		for kind, d := range []*Distribution{s.Elected, s.Settled} {
			if d != nil {
				c.Bars = append(c.Bars, barchart.Bar{Label: label, Kind: kind, Value: d.Median, End: d.Max})
			}
		}
	}
	_, err := io.WriteString(w, c.SVG())
	return err
}

func milliseconds(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.3g s", ms/1000)
	}
	return fmt.Sprintf("%.3g ms", ms)
}
