// Package plot renders line charts with logarithmic axes as SVG: a row of panels
// with the same axes and one legend. Equal charts give equal SVG: rendering uses no
// fonts, no clock and no randomness.
//
// The viewer chooses the sans-serif font, so the layout doesn't depend on the exact
// width of texts.
package plot

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Chart is a row of panels.
type Chart struct {
	Title    string
	Subtitle string
	// Note is a line of small text at the bottom.
	Note   string
	XLabel string
	YLabel string
	Panels []Panel
}

// Panel is one coordinate system. All panels of a chart have the same lines in the
// same order.
type Panel struct {
	Title string
	Lines []Line
}

// Line is a series of points with ascending X. Points that aren't above 0 have no
// position on a logarithmic axis and are omitted.
type Line struct {
	Name string
	X, Y []float64
}

// style distinguishes lines. Widths differ so that overlapping lines remain visible.
// Dashes and marks differ so that colors aren't necessary.
type style struct {
	color     string
	textColor string // a darker color for small text
	width     float64
	dash      string
	mark      string
}

// The colors are those of Okabe and Ito, which are suitable for color-blind readers.
var styles = []style{
	{color: "#0072b2", textColor: "#0072b2", width: 5},
	{color: "#d55e00", textColor: "#c25500", width: 2, mark: "square"},
	{color: "#a3a3a3", textColor: "#757575", width: 9},
	{color: "#009e73", textColor: "#00805d", width: 5},
	{color: "#cc79a7", textColor: "#b0517f", width: 2.2, dash: "7 4", mark: "diamond"},
	{color: "#111111", textColor: "#111111", width: 1.6, dash: "2 3", mark: "triangle"},
}

// The layout, in pixels.
const (
	width       = 1160.0
	height      = 584.0
	left        = 84.0
	right       = 24.0
	top         = 132.0
	bottom      = 90.0
	panelGap    = 28.0
	valueHeight = 15.0 // the minimum distance between values at the right of a panel
	markEvery   = 6    // the number of points from one mark to the next
)

// WriteTo writes the chart as SVG.
func (c *Chart) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, c.SVG())
	return int64(n), err
}

// begin returns a drawing of a height, with a title and a subtitle.
func begin(title, subtitle string, height float64) *drawing {
	d := &drawing{}
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" `+
		`font-family="Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif">`, width, height, width, height)
	d.add(`<title>%s</title>`, escape(title))
	d.add(`<desc>%s</desc>`, escape(subtitle))
	d.add(`<rect width="%g" height="%g" fill="#ffffff"/>`, width, height)
	d.text(left, 36, `font-size="21" font-weight="600" fill="#1a1a1a"`, title)
	d.text(left, 60, `font-size="14" fill="#555555"`, subtitle)
	return d
}

// SVG returns the chart as SVG.
func (c *Chart) SVG() string {
	d := begin(c.Title, c.Subtitle, height)
	if len(c.Panels) > 0 {
		d.legend(c.Panels[0].Lines)
		x, y := c.ranges()
		margin := c.valueMargin()
		panelWidth := (width - left - right - float64(len(c.Panels)-1)*panelGap) / float64(len(c.Panels))
		for i, p := range c.Panels {
			at := left + float64(i)*(panelWidth+panelGap)
			d.panel(p, frame{
				x: x.toAxis(at, at+panelWidth-margin), y: y.toAxis(height-bottom, top), first: i == 0,
			})
		}
		d.text(left+(width-left-right)/2, height-40, `font-size="14" fill="#333333" text-anchor="middle"`, c.XLabel)
		d.add(`<text transform="translate(24 %g) rotate(-90)" font-size="14" fill="#333333" text-anchor="middle">%s</text>`,
			(top+height-bottom)/2, escape(c.YLabel))
	}
	if c.Note != "" {
		d.text(left, height-12, `font-size="13" fill="#555555"`, c.Note)
	}
	d.add(`</svg>`)
	return d.String()
}

// valueMargin returns the width of the space at the right of each panel, which has
// the last value of each line.
func (c *Chart) valueMargin() float64 {
	longest := 6
	for _, p := range c.Panels {
		for _, l := range p.Lines {
			if n := len(l.Y); n > 0 {
				longest = max(longest, len(number(l.Y[n-1])))
			}
		}
	}
	return 10 + 8*float64(longest)
}

// ranges returns the ranges of all values of all panels.
func (c *Chart) ranges() (x, y span) {
	x, y = emptySpan(), emptySpan()
	for _, p := range c.Panels {
		for _, l := range p.Lines {
			for i := range l.X {
				if l.X[i] > 0 && l.Y[i] > 0 {
					x.include(l.X[i])
					y.include(l.Y[i])
				}
			}
		}
	}
	return x.orDefault(), y.orDefault()
}

// span is a range of values.
type span struct{ low, high float64 }

func emptySpan() span { return span{math.Inf(1), math.Inf(-1)} }

func (s *span) include(v float64) { s.low, s.high = min(s.low, v), max(s.high, v) }

// orDefault widens a span that is empty or a single value.
func (s span) orDefault() span {
	if s.low > s.high {
		return span{1, 10}
	}
	if s.low == s.high {
		return span{s.low / 2, s.high * 2}
	}
	return s
}

// toAxis maps the span to the positions between two pixels.
func (s span) toAxis(from, to float64) axis { return axis{span: s, from: from, to: to} }

// maxTicks is the preferred maximum number of ticks on an axis.
const maxTicks = 6

// axis maps values to positions on a logarithmic scale.
type axis struct {
	span
	from, to float64
}

func (a axis) at(v float64) float64 {
	return a.from + (a.to-a.from)*math.Log(v/a.low)/math.Log(a.high/a.low)
}

// ticks returns round values on the axis: 1, 2 and 5 times powers of ten, or only
// powers of ten if there are more than maxTicks.
func (a axis) ticks() []float64 {
	var values []float64
	for _, steps := range [][]float64{{1, 2, 5}, {1}} {
		values = nil
		for decade := math.Pow(10, math.Floor(math.Log10(a.low))); decade <= a.high; decade *= 10 {
			for _, step := range steps {
				if v := decade * step; v >= a.low*0.999 && v <= a.high*1.001 {
					values = append(values, v)
				}
			}
		}
		if len(values) <= maxTicks {
			break
		}
	}
	return values
}

// drawing builds the SVG.
type drawing struct{ strings.Builder }

func (d *drawing) add(format string, args ...any) {
	fmt.Fprintf(d, format, args...)
	d.WriteByte('\n')
}

func (d *drawing) text(x, y float64, attributes, content string) {
	d.add(`<text x="%.1f" y="%.1f" %s>%s</text>`, x, y, attributes, escape(content))
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

func escape(s string) string { return escaper.Replace(s) }
