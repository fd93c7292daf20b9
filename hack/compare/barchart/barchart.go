// Package barchart draws bar charts with a logarithmic axis, as SVG for light and dark pages.
package barchart

import (
	"fmt"
	"html"
	"math"
	"strings"
)

const (
	chartWidth = 900
	plotLeft   = 210
	plotRight  = chartWidth - 90
	plotTop    = 96
	barHeight  = 11
	rowGap     = 9
)

// chartStyle has colors that can be told apart with any color vision, on light and dark backgrounds.
const chartStyle = `<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.small { font-size: 10.5px; fill: #59636e }
.back { fill: #fff } .grid { stroke: #d1d9e0 } .whisker { stroke: #1f2328; stroke-width: 1.2 }
.f0 { fill: #0969da } .f1 { fill: #1a9e77 } .f2 { fill: #d9730d } .f3 { fill: #8250df }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .small { fill: #9198a1 } .back { fill: #0d1117 }
.grid { stroke: #3d444d } .whisker { stroke: #f0f6fc }
.f0 { fill: #4493f8 } .f1 { fill: #2bb68c } .f2 { fill: #f0883e } .f3 { fill: #ab7df8 }
}
</style>
`

// Chart has bars on a logarithmic axis.
type Chart struct {
	Title, Note string
	// Kinds are the legend, of up to four. A bar has the color of its kind.
	Kinds []string
	// The axis begins at From, and each step is ten times as long, up to To. Format writes a value.
	From, To float64
	Format   func(float64) string
	// Bars of the same label follow each other.
	Bars []Bar
}

// Bar has a line from its value to another one, unless that is 0. With a text, it has no value.
type Bar struct {
	Label      string
	Kind       int
	Value, End float64
	Text       string
}

func (c *Chart) position(value float64) float64 {
	share := math.Log(min(max(value, c.From), c.To)/c.From) / math.Log(c.To/c.From)
	return plotLeft + share*(plotRight-plotLeft)
}

// SVG draws the chart.
func (c *Chart) SVG() string {
	var bars strings.Builder
	top := plotTop
	if len(c.Kinds) < 2 {
		top -= 26
	}
	y, last := float64(top), ""
	for _, b := range c.Bars {
		if b.Label != last {
			if last != "" {
				y += rowGap
			}
			fmt.Fprintf(&bars, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", plotLeft-8, y+barHeight,
				html.EscapeString(b.Label))
			last = b.Label
		}
		bars.WriteString(c.drawn(b, y))
		y += barHeight
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" role="img" aria-label="%s">`+"\n",
		chartWidth, y+36, html.EscapeString(c.Title))
	out.WriteString(chartStyle)
	out.WriteString(`<rect class="back" width="100%" height="100%"/>` + "\n")
	fmt.Fprintf(&out, `<text class="title" x="16" y="26">%s</text>`+"\n", html.EscapeString(c.Title))
	fmt.Fprintf(&out,
		`<text class="small" x="16" y="44">%s Each step of the logarithmic axis is ten times as long.</text>`+"\n",
		html.EscapeString(c.Note))
	for i, kind := range c.Kinds {
		if len(c.Kinds) > 1 {
			x := 16 + 220*i
			fmt.Fprintf(&out,
				`<rect class="f%d" x="%d" y="55" width="12" height="12" rx="2"/><text x="%d" y="65">%s</text>`+"\n", i, x,
				x+18, html.EscapeString(kind))
		}
	}
	for value := c.From; value <= c.To*1.01; value *= 10 {
		fmt.Fprintf(&out, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%.1f"/><text class="small" x="%.1f" y="%.1f" `+
			`text-anchor="middle">%s</text>`+"\n",
			c.position(value), c.position(value), top-6, y+6, c.position(value), y+20, c.Format(value))
	}
	out.WriteString(bars.String() + "</svg>\n")
	return out.String()
}

func (c *Chart) drawn(b Bar, y float64) string {
	if b.Text != "" {
		return fmt.Sprintf(`<text class="small" x="%d" y="%.1f">%s</text>`+"\n", plotLeft+4,
			y+barHeight-2, html.EscapeString(b.Text))
	}
	middle, value, end := y+barHeight/2.0, c.position(b.Value), c.position(max(b.Value, b.End))
	return fmt.Sprintf(`<rect class="f%d" x="%d" y="%.1f" width="%.1f" height="%d"/><line class="whisker" x1="%.1f" `+
		`x2="%.1f" y1="%.1f" y2="%.1f"/><text class="small" x="%.1f" y="%.1f">%s</text>`+"\n",
		b.Kind, plotLeft, y+1, value-plotLeft, barHeight-2, value, end, middle, middle, end+5,
		y+barHeight-1.5, c.Format(b.Value))
}
