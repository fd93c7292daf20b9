// Package plot draws lines on logarithmic axes as SVG: a row of panels that
// share their axes, with one legend. It is a pure function from a Chart to a
// picture: no fonts to load, no clock, no randomness.
//
// Text is set in whatever sans-serif font the viewer has, so no place depends
// on the exact width of a text.
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
	// Note is small print below.
	Note   string
	XLabel string
	YLabel string
	Panels []Panel
}

// Panel is one coordinate system. All panels of a chart name the same lines, in
// the same order.
type Panel struct {
	Title string
	Lines []Line
}

// Line is a series of points, from left to right. Those that aren't above 0
// have no place on a logarithmic axis, and are left out.
type Line struct {
	Name string
	X, Y []float64
}

// style tells lines apart, also where they lie on each other (the later ones are
// thinner) and for those who don't see colours (the dashes and marks differ).
type style struct {
	colour string
	ink    string // the colour of small text
	width  float64
	dash   string
	mark   string
}

// The colours are Okabe and Ito's, which most eyes tell apart.
var styles = []style{
	{colour: "#0072b2", ink: "#0072b2", width: 5},
	{colour: "#d55e00", ink: "#c25500", width: 2, mark: "square"},
	{colour: "#a3a3a3", ink: "#757575", width: 9},
	{colour: "#009e73", ink: "#00805d", width: 5},
	{colour: "#cc79a7", ink: "#b0517f", width: 2.2, dash: "7 4", mark: "diamond"},
	{colour: "#111111", ink: "#111111", width: 1.6, dash: "2 3", mark: "triangle"},
}

// The places of things, in pixels.
const (
	width       = 1160.0
	height      = 584.0
	left        = 84.0
	right       = 24.0
	top         = 132.0
	bottom      = 90.0
	panelGap    = 28.0
	valueHeight = 15.0
	markEvery   = 6
)

// WriteTo writes the picture.
func (c *Chart) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, c.SVG())
	return int64(n), err
}

// SVG is the picture.
func (c *Chart) SVG() string {
	d := &drawing{}
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" `+
		`font-family="Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif">`, width, height, width, height)
	d.add(`<title>%s</title>`, escaped(c.Title))
	d.add(`<desc>%s</desc>`, escaped(c.Subtitle))
	d.add(`<rect width="%g" height="%g" fill="#ffffff"/>`, width, height)
	d.text(left, 36, `font-size="21" font-weight="600" fill="#1a1a1a"`, c.Title)
	d.text(left, 60, `font-size="14" fill="#555555"`, c.Subtitle)
	if len(c.Panels) > 0 {
		d.legend(c.Panels[0].Lines)
		x, y := c.ranges()
		margin := c.valueMargin()
		wide := (width - left - right - float64(len(c.Panels)-1)*panelGap) / float64(len(c.Panels))
		for i, p := range c.Panels {
			at := left + float64(i)*(wide+panelGap)
			d.panel(p, frame{
				x: x.on(at, at+wide-margin), y: y.on(height-bottom, top), first: i == 0,
			})
		}
		d.text(left+(width-left-right)/2, height-40, `font-size="14" fill="#333333" text-anchor="middle"`, c.XLabel)
		d.add(`<text transform="translate(24 %g) rotate(-90)" font-size="14" fill="#333333" text-anchor="middle">%s</text>`,
			(top+height-bottom)/2, escaped(c.YLabel))
	}
	if c.Note != "" {
		d.text(left, height-12, `font-size="13" fill="#555555"`, c.Note)
	}
	d.add(`</svg>`)
	return d.String()
}

// valueMargin is the room right of each panel, for the values at its end.
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

// ranges are the least and the greatest of all panels.
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
	return x.orUnit(), y.orUnit()
}

// span is a part of a logarithmic axis.
type span struct{ least, most float64 }

func emptySpan() span { return span{math.Inf(1), math.Inf(-1)} }

func (s *span) include(v float64) { s.least, s.most = min(s.least, v), max(s.most, v) }

func (s span) orUnit() span {
	if s.least > s.most {
		return span{1, 10}
	}
	if s.least == s.most {
		return span{s.least / 2, s.most * 2}
	}
	return s
}

// on puts the span between two places of the picture.
func (s span) on(from, to float64) axis { return axis{span: s, from: from, to: to} }

// axis maps values to places.
type axis struct {
	span
	from, to float64
}

func (a axis) at(v float64) float64 {
	return a.from + (a.to-a.from)*math.Log(v/a.least)/math.Log(a.most/a.least)
}

// ticks are the round values on the axis, at most 6 of them if that is possible.
func (a axis) ticks() []float64 {
	var found []float64
	for _, steps := range [][]float64{{1, 2, 5}, {1}} {
		found = nil
		for decade := math.Pow(10, math.Floor(math.Log10(a.least))); decade <= a.most; decade *= 10 {
			for _, step := range steps {
				if v := decade * step; v >= a.least*0.999 && v <= a.most*1.001 {
					found = append(found, v)
				}
			}
		}
		if len(found) <= 6 {
			break
		}
	}
	return found
}

// drawing is a picture that grows.
type drawing struct{ strings.Builder }

func (d *drawing) add(format string, args ...any) {
	fmt.Fprintf(d, format, args...)
	d.WriteByte('\n')
}

func (d *drawing) text(x, y float64, attributes, said string) {
	d.add(`<text x="%.1f" y="%.1f" %s>%s</text>`, x, y, attributes, escaped(said))
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

func escaped(s string) string { return escaper.Replace(s) }
