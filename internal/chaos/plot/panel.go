package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// frame is the position of a panel.
type frame struct {
	x, y axis
	// first is set for the panel with the labels of the y axis.
	first bool
}

// legend draws the names of the lines in one row above the panels.
func (d *drawing) legend(lines []Line) {
	entryWidth := (width - left - right) / float64(max(1, len(lines)))
	for i, l := range lines {
		x := left + float64(i)*entryWidth
		s := styles[i%len(styles)]
		d.add(`<line x1="%.1f" y1="84" x2="%.1f" y2="84"%s/>`, x, x+34, s.stroke())
		d.mark(s, x+17, 84)
		d.text(x+42, 89, `font-size="14" fill="#1a1a1a"`, l.Name)
	}
}

func (d *drawing) panel(p Panel, f frame) {
	d.text(f.x.from, top-14, `font-size="15" font-weight="600" fill="#1a1a1a"`, p.Title)
	d.grid(f)
	for _, i := range widestFirst(p.Lines) {
		d.line(p.Lines[i], styles[i%len(styles)], f)
	}
	d.values(p.Lines, f)
}

// widestFirst returns the indexes of the lines in drawing order, in which no line
// hides another.
func widestFirst(lines []Line) []int {
	order := make([]int, len(lines))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(styles[b%len(styles)].width, styles[a%len(styles)].width)
	})
	return order
}

func (d *drawing) grid(f frame) {
	d.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#fafafa"/>`,
		f.x.from, f.y.to, f.x.to-f.x.from, f.y.from-f.y.to)
	for _, v := range f.y.ticks() {
		y := f.y.at(v)
		d.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#dcdcdc"/>`, f.x.from, y, f.x.to, y)
		if f.first {
			d.text(f.x.from-8, y+4.5, `font-size="13" fill="#555555" text-anchor="end"`, number(v))
		}
	}
	for _, v := range f.x.ticks() {
		x := f.x.at(v)
		d.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ececec"/>`, x, f.y.from, x, f.y.to)
		d.text(x, f.y.from+20, `font-size="13" fill="#555555" text-anchor="middle"`, number(v))
	}
	d.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#888888"/>`, f.x.from, f.y.from, f.x.to, f.y.from)
}

func (d *drawing) line(l Line, s style, f frame) {
	var points []string
	shown := 0
	for i := range l.X {
		if l.X[i] <= 0 || l.Y[i] <= 0 {
			continue
		}
		points = append(points, fmt.Sprintf("%.1f,%.1f", f.x.at(l.X[i]), f.y.at(l.Y[i])))
	}
	d.add(`<polyline points="%s" fill="none" stroke-linejoin="round" stroke-linecap="round"%s/>`,
		strings.Join(points, " "), s.stroke())
	if len(points) == 1 {
		s = s.withMark()
	}
	first := min(markEvery/2, len(points)-1)
	for i := range l.X {
		if l.X[i] <= 0 || l.Y[i] <= 0 {
			continue
		}
		if shown%markEvery == first {
			d.mark(s, f.x.at(l.X[i]), f.y.at(l.Y[i]))
		}
		shown++
	}
}

func (s style) stroke() string {
	dash := ""
	if s.dash != "" {
		dash = fmt.Sprintf(` stroke-dasharray="%s"`, s.dash)
	}
	return fmt.Sprintf(` stroke="%s" stroke-width="%g"%s`, s.color, s.width, dash)
}

// withMark returns the style with a mark, without which a single point is invisible.
func (s style) withMark() style {
	if s.mark == "" {
		s.mark = "dot"
	}
	return s
}

// mark draws the mark of a style.
func (d *drawing) mark(s style, x, y float64) {
	fill := fmt.Sprintf(`fill="%s" stroke="#ffffff" stroke-width="1"`, s.color)
	switch s.mark {
	case "dot":
		d.add(`<circle cx="%.1f" cy="%.1f" r="%.1f" %s/>`, x, y, 2+s.width, fill)
	case "square":
		d.add(`<rect x="%.1f" y="%.1f" width="7.4" height="7.4" %s/>`, x-3.7, y-3.7, fill)
	case "diamond":
		d.add(`<path d="M%.1f %.1fl5 5l-5 5l-5 -5z" %s/>`, x, y-5, fill)
	case "triangle":
		d.add(`<path d="M%.1f %.1fl4.8 8.4h-9.6z" %s/>`, x, y-5.4, fill)
	}
}

// values draws the last value of each line at the right of its end. It moves values
// apart that would overlap.
func (d *drawing) values(lines []Line, f frame) {
	type label struct {
		line int
		y    float64
		text string
	}
	var labels []label
	for i, l := range lines {
		if n := len(l.Y); n > 0 && l.Y[n-1] > 0 {
			labels = append(labels, label{line: i, y: f.y.at(l.Y[n-1]), text: number(l.Y[n-1])})
		}
	}
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	positions := make([]float64, len(labels))
	for i, l := range labels {
		positions[i] = l.y
	}
	spread(positions, valueHeight, f.y.to-6, f.y.from)
	for i, l := range labels {
		s := styles[l.line%len(styles)]
		d.add(`<path d="M%.1f %.1fL%.1f %.1f" fill="none" stroke="%s" stroke-opacity="0.5"/>`,
			f.x.to+3, l.y, f.x.to+12, positions[i], s.color)
		d.text(f.x.to+15, positions[i]+4.5, fmt.Sprintf(`font-size="12.5" font-weight="600" fill="%s"`, s.textColor), l.text)
	}
}

// spread moves ascending positions apart, so that their distances are at least the
// given one and all are within the bounds if there is enough space.
func spread(positions []float64, distance, low, high float64) {
	for range 50 {
		for i := 1; i < len(positions); i++ {
			if missing := distance - (positions[i] - positions[i-1]); missing > 0 {
				positions[i-1] -= missing / 2
				positions[i] += missing / 2
			}
		}
	}
	for i := range positions {
		positions[i] = max(positions[i], low+float64(i)*distance)
	}
	for i := len(positions) - 1; i >= 0; i-- {
		positions[i] = min(positions[i], high-float64(len(positions)-1-i)*distance)
	}
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
