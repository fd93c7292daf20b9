package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// frame is where a panel is.
type frame struct {
	x, y axis
	// first: the panel that has the labels of the y axis.
	first bool
}

// legend names the lines, in one row above the panels.
func (d *drawing) legend(lines []Line) {
	wide := (width - left - right) / float64(max(1, len(lines)))
	for i, l := range lines {
		x := left + float64(i)*wide
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

// widestFirst are the lines in the order in which none hides another.
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
		s = s.dotted()
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
	return fmt.Sprintf(` stroke="%s" stroke-width="%g"%s`, s.colour, s.width, dash)
}

// dotted is the style of a line that is a single point, and so has no length.
func (s style) dotted() style {
	if s.mark == "" {
		s.mark = "dot"
	}
	return s
}

// mark draws a line's mark.
func (d *drawing) mark(s style, x, y float64) {
	fill := fmt.Sprintf(`fill="%s" stroke="#ffffff" stroke-width="1"`, s.colour)
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

// values writes the last value of each line behind its end, moved apart where
// they would lie on each other.
func (d *drawing) values(lines []Line, f frame) {
	type label struct {
		line int
		y    float64
		said string
	}
	var labels []label
	for i, l := range lines {
		if n := len(l.Y); n > 0 && l.Y[n-1] > 0 {
			labels = append(labels, label{line: i, y: f.y.at(l.Y[n-1]), said: number(l.Y[n-1])})
		}
	}
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	places := make([]float64, len(labels))
	for i, l := range labels {
		places[i] = l.y
	}
	spread(places, valueHeight, f.y.to-6, f.y.from)
	for i, l := range labels {
		s := styles[l.line%len(styles)]
		d.add(`<path d="M%.1f %.1fL%.1f %.1f" fill="none" stroke="%s" stroke-opacity="0.5"/>`,
			f.x.to+3, l.y, f.x.to+12, places[i], s.colour)
		d.text(f.x.to+15, places[i]+4.5, fmt.Sprintf(`font-size="12.5" font-weight="600" fill="%s"`, s.ink), l.said)
	}
}

// spread moves places, which ascend, apart until each is a distance from the
// next and all are between two bounds, if they have room there.
func spread(places []float64, distance, least, most float64) {
	for range 50 {
		for i := 1; i < len(places); i++ {
			if lack := distance - (places[i] - places[i-1]); lack > 0 {
				places[i-1] -= lack / 2
				places[i] += lack / 2
			}
		}
	}
	for i := range places {
		places[i] = max(places[i], least+float64(i)*distance)
	}
	for i := len(places) - 1; i >= 0; i-- {
		places[i] = min(places[i], most-float64(len(places)-1-i)*distance)
	}
}

// number writes a value with commas between the thousands, and one decimal
// where it isn't whole and below 100.
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
