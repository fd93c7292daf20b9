package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

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

func TestTicksAreRoundAndFew(t *testing.T) {
	for _, c := range []struct {
		span span
		want []float64
	}{
		{span{3, 100}, []float64{5, 10, 20, 50, 100}},
		{span{1, 10_000}, []float64{1, 10, 100, 1000, 10_000}},
		{span{98, 130}, []float64{100}},
	} {
		if got := (axis{span: c.span, from: 0, to: 1}).ticks(); !slices.Equal(got, c.want) {
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
