// Package plot renders a chart with a logarithmic axis as SVG. Equal charts give equal SVG: rendering uses no fonts, no clock and no
// randomness.
//
// The viewer chooses the sans-serif font, so the layout doesn't depend on the exact width of texts.
package plot

// Ranges is a chart with a row for each category and, in each row, a range for each series, on a logarithmic axis.
type Ranges struct {
	Title    string
	Subtitle string
	// Note is a line of small text at the bottom.
	Note   string
	XLabel string
	// Series are the names of the series.
	Series []string
	Rows   []RangeRow
}

// RangeRow is a category. Its ranges are in the order of the series.
type RangeRow struct {
	Name   string
	Ranges []Range
}

// Range is drawn as a line from Low to High with a mark at Middle. A range that isn't above 0 is omitted.
type Range struct{ Low, Middle, High float64 }

// The layout, in pixels.
const (
	width       = 1160.0
	left        = 84.0
	right       = 24.0
	top         = 132.0
	nameWidth   = 110.0
	rangeHeight = 9.0
	rowGap      = 14.0
	axisHeight  = 74.0
)

// style distinguishes series. The order of the ranges of a row is that of the legend, so colors aren't necessary.
type style struct {
	color string
	width float64
	mark  string
}

// The colors are those of Okabe and Ito, which are suitable for color-blind readers.
var styles = []style{
	{color: "#0072b2", width: 5, mark: "dot"},
	{color: "#d55e00", width: 2, mark: "square"},
	{color: "#a3a3a3", width: 9, mark: "dot"},
	{color: "#009e73", width: 5, mark: "dot"},
}

// SVG returns the chart as SVG.
func (c *Ranges) SVG() string {
	rowHeight := float64(len(c.Series))*rangeHeight + rowGap
	bottomEdge := top + float64(len(c.Rows))*rowHeight
	total := bottomEdge + axisHeight
	d := begin(c.Title, c.Subtitle, total)
	d.legend(c.Series)
	x := axis{span: c.span(), from: left + nameWidth, to: width - right}
	d.grid(x, top-rowGap, bottomEdge)
	for i, row := range c.Rows {
		from := top + float64(i)*rowHeight
		d.text(left+nameWidth-12, from+float64(len(c.Series))*rangeHeight/2+4, `font-size="14" fill="#1a1a1a" text-anchor="end"`, row.Name)
		for j, r := range row.Ranges {
			d.bar(r, styles[j%len(styles)], x, from+(float64(j)+0.5)*rangeHeight)
		}
	}
	d.text(left+nameWidth, bottomEdge+44, `font-size="14" fill="#333333"`, c.XLabel)
	d.text(left, total-8, `font-size="13" fill="#555555"`, c.Note)
	d.add(`</svg>`)
	return d.String()
}

func (c *Ranges) span() span {
	s := emptySpan()
	for _, row := range c.Rows {
		for _, r := range row.Ranges {
			if r.Low > 0 {
				s.include(r.Low)
				s.include(r.High)
			}
		}
	}
	return s.orDefault()
}

// bar draws a range.
func (d *drawing) bar(r Range, s style, x axis, y float64) {
	if r.Low <= 0 {
		return
	}
	d.add(`<polyline points="%.1f,%.1f %.1f,%.1f" stroke="%s" stroke-width="2.5"/>`, x.at(r.Low), y, x.at(r.High), y, s.color)
	d.mark(s, x.at(r.Middle), y)
}
