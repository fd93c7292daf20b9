package plot

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

func newChart() *Chart {
	c := &Chart{Title: `Costs <of> "six" & more`, Subtitle: "A subtitle", XLabel: "n", YLabel: "messages"}
	for p := range 3 {
		panel := Panel{Title: fmt.Sprintf("Panel %d", p)}
		for l := range 6 {
			line := Line{Name: fmt.Sprintf("Line %d", l)}
			for x := 2; x <= 100; x++ {
				line.X, line.Y = append(line.X, float64(x)), append(line.Y, float64(x*(l+1)+p))
			}
			panel.Lines = append(panel.Lines, line)
		}
		c.Panels = append(c.Panels, panel)
	}
	return c
}

// elements returns the number of elements by name, and the texts.
func elements(t *testing.T, svg string) (counts map[string]int, texts []string) {
	t.Helper()
	counts = map[string]int{}
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return counts, texts
		}
		if err != nil {
			t.Fatalf("got invalid XML: %v\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			counts[token.Name.Local]++
		case xml.CharData:
			if text := strings.TrimSpace(string(token)); text != "" {
				texts = append(texts, text)
			}
		}
	}
}

func TestSVGHasAllTextsAndLines(t *testing.T) {
	counts, texts := elements(t, newChart().SVG())
	if counts["svg"] != 1 || counts["polyline"] != 18 {
		t.Errorf("got %d svg elements with %d lines, want 1 with 18", counts["svg"], counts["polyline"])
	}
	for _, want := range []string{
		`Costs <of> "six" & more`, "A subtitle", "n", "messages", "Panel 0", "Panel 2", "Line 0", "Line 5", "600", "10", "50",
	} {
		if !slices.Contains(texts, want) {
			t.Errorf("got texts %q, want %q", texts, want)
		}
	}
}

func TestUnusualChartsAreValid(t *testing.T) {
	line := func(x, y float64) *Chart {
		return &Chart{Panels: []Panel{{Lines: []Line{{Name: "one", X: []float64{x}, Y: []float64{y}}}}}}
	}
	for name, c := range map[string]*Chart{
		"empty": {}, "no lines": {Panels: []Panel{{}}}, "one point": line(5, 7), "nothing above 0": line(5, 0),
		"seven lines": {Panels: []Panel{{Lines: make([]Line, 7)}}},
	} {
		svg := c.SVG()
		elements(t, svg)
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: got a position that is not a number:\n%s", name, svg)
		}
	}
}

// Without a mark, a line of a single point would be invisible.
func TestLinesOfASinglePointHaveAMark(t *testing.T) {
	for points := 1; points <= 3; points++ {
		c := &Chart{Panels: []Panel{{}}}
		for l := range styles {
			line := Line{Name: fmt.Sprintf("Line %d", l)}
			for x := range points {
				line.X, line.Y = append(line.X, float64(x+3)), append(line.Y, float64(x+l+1))
			}
			c.Panels[0].Lines = append(c.Panels[0].Lines, line)
		}
		counts, _ := elements(t, c.SVG())
		// The legend and the panel have a square each. The other two rectangles are the
		// backgrounds of the chart and of the panel.
		if counts["rect"] != 2+2 || points == 1 && counts["circle"] != 3 {
			t.Errorf("%d points: got %d squares and %d dots", points, counts["rect"]-2, counts["circle"])
		}
	}
}

// The values at the right of a panel must not overlap the next panel.
func TestLargeValuesFitBetweenPanels(t *testing.T) {
	c := newChart()
	for i := range c.Panels {
		for l := range c.Panels[i].Lines {
			c.Panels[i].Lines[l].Y[98] = 1_000_000
		}
	}
	if room, need := c.valueMargin()+panelGap, 15+8.0*float64(len("1,000,000")); room < need {
		t.Errorf("got %g pixels, want %g", room, need)
	}
	if room, need := c.valueMargin()+right, 15+8.0*float64(len("1,000,000")); room < need {
		t.Errorf("got %g pixels at the edge, want %g", room, need)
	}
}

func TestSpreadMovesLabelsApart(t *testing.T) {
	for _, places := range [][]float64{
		{100, 100, 100}, {10, 11, 12, 13, 14, 15}, {198, 199, 200}, {10, 50, 150}, {10, 24, 199, 199}, {},
	} {
		got := slices.Clone(places)
		spread(got, 15, 10, 200)
		for i := range got {
			if got[i] < 10-1e-6 || got[i] > 200+1e-6 {
				t.Errorf("%v: got %g, want it within the bounds", places, got[i])
			}
			if i > 0 && got[i]-got[i-1] < 15-0.5 {
				t.Errorf("%v: got %g and %g, want a distance of 15", places, got[i-1], got[i])
			}
		}
	}
	apart := []float64{20, 80, 140}
	spread(apart, 15, 10, 200)
	if !slices.Equal(apart, []float64{20, 80, 140}) {
		t.Errorf("got %v, want positions that are far apart unchanged", apart)
	}
}

func TestTicksAreRoundAndFew(t *testing.T) {
	for _, c := range []struct {
		span span
		want []float64
	}{
		{span{3, 100}, []float64{5, 10, 20, 50, 100}},
		{span{1, 10_000}, []float64{1, 10, 100, 1000, 10_000}},
		{span{98, 130}, []float64{100}},
	} {
		if got := c.span.toAxis(0, 1).ticks(); !slices.Equal(got, c.want) {
			t.Errorf("%v: got ticks %v, want %v", c.span, got, c.want)
		}
	}
}

func TestNumbersHaveThousandsSeparators(t *testing.T) {
	for want, v := range map[string]float64{"1": 1, "19.9": 19.9, "20": 20.01, "3,414": 3413.7, "10,000": 10_000, "1,000,000": 1e6} {
		if got := number(v); got != want {
			t.Errorf("number(%g): got %q, want %q", v, got, want)
		}
	}
}

func TestRangesHaveAllTextsAndRanges(t *testing.T) {
	c := &Ranges{
		Title: "Failover <times>", Subtitle: "A subtitle", XLabel: "ms", Series: []string{"elected", "known"},
		Rows: []RangeRow{{Name: "pod", Ranges: []Range{{1, 2, 1000}, {}}}, {Name: "force-pod", Ranges: []Range{{5, 6, 7}, {8, 8, 8}}}},
	}
	counts, texts := elements(t, c.SVG())
	if counts["polyline"] != 3 {
		t.Errorf("got %d ranges, want 3: one isn't above 0", counts["polyline"])
	}
	for _, want := range []string{"Failover <times>", "A subtitle", "ms", "elected", "known", "pod", "force-pod", "100"} {
		if !slices.Contains(texts, want) {
			t.Errorf("got texts %q, want %q", texts, want)
		}
	}
	for name, c := range map[string]*Ranges{"empty": {}, "one value": {Series: []string{"a"}, Rows: []RangeRow{{Ranges: []Range{{3, 3, 3}}}}}} {
		svg := c.SVG()
		elements(t, svg)
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: got a position that is not a number:\n%s", name, svg)
		}
	}
}
