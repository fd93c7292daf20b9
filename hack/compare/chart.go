package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The chart has a logarithmic axis from axisFrom to axisTo milliseconds.
const (
	axisFrom, axisTo = 0.1, 100_000
	chartWidth       = 900
	plotLeft         = 210
	plotRight        = chartWidth - 90
	plotTop          = 96
	barHeight        = 11
	systemGap        = 9
)

func axis(ms float64) float64 {
	share := math.Log(min(max(ms, axisFrom), axisTo)/axisFrom) / math.Log(axisTo/axisFrom)
	return plotLeft + share*(plotRight-plotLeft)
}

// chartStyle has colors that can be told apart with any color vision, on light and dark backgrounds.
const chartStyle = `<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.small { font-size: 10.5px; fill: #59636e }
.back { fill: #fff } .grid { stroke: #d1d9e0 } .whisker { stroke: #1f2328; stroke-width: 1.2 }
.f0 { fill: #0969da } .f1 { fill: #1a9e77 } .f2 { fill: #d9730d } .f3 { fill: #8250df }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .small { fill: #9198a1 } .back { fill: #0d1117 } .grid { stroke: #3d444d } .whisker { stroke: #f0f6fc }
.f0 { fill: #4493f8 } .f1 { fill: #2bb68c } .f2 { fill: #f0883e } .f3 { fill: #ab7df8 }
}
</style>
`

// chart draws the time until all survivors know the next leader: a bar for each system and fault.
func chart(failovers []Failover) string {
	var bars strings.Builder
	y, last := float64(plotTop), ""
	for _, f := range failovers {
		if f.System != last {
			if last != "" {
				y += systemGap
			}
			fmt.Fprintf(&bars, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", plotLeft-8, y+barHeight, html.EscapeString(titleOf(f.System)))
			last = f.System
		}
		bars.WriteString(bar(f, y))
		y += barHeight
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" role="img" aria-label="Time until all survivors know the next leader">`+"\n", chartWidth, y+36)
	out.WriteString(chartStyle)
	out.WriteString(`<rect class="back" width="100%" height="100%"/>` + "\n")
	out.WriteString(`<text class="title" x="16" y="26">The leader is taken away: time until all survivors know the next one</text>` + "\n")
	fmt.Fprintf(&out, `<text class="small" x="16" y="44">%d candidates on one machine. Bars: median. Lines: to the 99th percentile. Each step of the logarithmic axis is ten times as long.</text>`+"\n", candidates)
	for i, f := range faults {
		x := 16 + 220*i
		fmt.Fprintf(&out, `<rect class="f%d" x="%d" y="55" width="12" height="12" rx="2"/><text x="%d" y="65">%s (%s)</text>`+"\n", i, x, x+18, f.name, strings.Split(f.title, ":")[0])
	}
	for ms := axisFrom; ms <= axisTo*1.01; ms *= 10 {
		fmt.Fprintf(&out, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%.1f"/><text class="small" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n",
			axis(ms), axis(ms), plotTop-6, y+6, axis(ms), y+20, duration(ms))
	}
	out.WriteString(bars.String() + "</svg>\n")
	return out.String()
}

func bar(f Failover, y float64) string {
	kind := 0
	for i, other := range faults {
		if other.name == f.Fault {
			kind = i
		}
	}
	middle := y + barHeight/2.0
	if f.Took == nil {
		return fmt.Sprintf(`<text class="small" x="%d" y="%.1f">not within %s</text>`+"\n", plotLeft+4, y+barHeight-2, duration(f.Limit))
	}
	median, p99 := axis(f.Took.Median), axis(f.Took.P99)
	return fmt.Sprintf(`<rect class="f%d" x="%d" y="%.1f" width="%.1f" height="%d"/><line class="whisker" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text class="small" x="%.1f" y="%.1f">%s</text>`+"\n",
		kind, plotLeft, y+1, median-plotLeft, barHeight-2, median, p99, middle, middle, max(median, p99)+5, y+barHeight-1.5, duration(f.Took.Median))
}
