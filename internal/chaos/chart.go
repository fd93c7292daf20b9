package chaos

import "github.com/conclave-dev/conclave/internal/chaos/plot"

// Chart returns a chart of the durations of each kind of fault. Kinds without an election aren't in it.
func Chart(title string, summaries []Summary) *plot.Ranges {
	c := &plot.Ranges{
		Title: title, Subtitle: "From the fault. A line runs from the fastest to the slowest failover, with a mark at the median.",
		XLabel: "milliseconds", Series: []string{"elected", "known by all", "in the status", "in the Service"},
	}
	for i := range summaries {
		if s := &summaries[i]; s.Elected != nil {
			c.Rows = append(c.Rows, plot.RangeRow{Name: s.Kind, Ranges: []plot.Range{s.Elected.span(), s.Known.span(), s.Status.span(), s.Service.span()}})
		}
	}
	return c
}

// span has no value below 10 microseconds, because the axis is logarithmic.
func (d *Distribution) span() plot.Range {
	if d == nil {
		return plot.Range{}
	}
	const least = 0.01
	return plot.Range{Low: max(least, d.Min), Middle: max(least, d.Median), High: max(least, d.Max)}
}
