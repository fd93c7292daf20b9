package plot

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

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

// legend draws the names of the series in one row.
func (d *drawing) legend(names []string) {
	entryWidth := (width - left - right) / float64(max(1, len(names)))
	for i, name := range names {
		x := left + float64(i)*entryWidth
		s := styles[i%len(styles)]
		d.add(`<line x1="%.1f" y1="84" x2="%.1f" y2="84" stroke="%s" stroke-width="%g"/>`, x, x+34, s.color, s.width)
		d.mark(s, x+17, 84)
		d.text(x+42, 89, `font-size="14" fill="#1a1a1a"`, name)
	}
}

// grid draws the axis below an area, with a line for each tick.
func (d *drawing) grid(x axis, highest, lowest float64) {
	d.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#fafafa"/>`, x.from, highest, x.to-x.from, lowest-highest)
	for _, v := range x.ticks() {
		at := x.at(v)
		d.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ececec"/>`, at, lowest, at, highest)
		d.text(at, lowest+20, `font-size="13" fill="#555555" text-anchor="middle"`, number(v))
	}
	d.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#888888"/>`, x.from, lowest, x.to, lowest)
}

// mark draws the mark of a style.
func (d *drawing) mark(s style, x, y float64) {
	fill := fmt.Sprintf(`fill="%s" stroke="#ffffff" stroke-width="1"`, s.color)
	if s.mark == "square" {
		d.add(`<rect x="%.1f" y="%.1f" width="7.4" height="7.4" %s/>`, x-3.7, y-3.7, fill)
	} else {
		d.add(`<circle cx="%.1f" cy="%.1f" r="4" %s/>`, x, y, fill)
	}
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

// number formats a value with thousands separators. Values below 100 that aren't
// whole have one decimal.
func number(v float64) string {
	if v < 100 && math.Abs(v-math.Round(v)) > 0.05 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	digits := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	var b strings.Builder
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}
