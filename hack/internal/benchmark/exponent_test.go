package benchmark

import (
	"math"
	"testing"
)

func TestExponent(t *testing.T) {
	x := []float64{3, 10, 30, 100}
	for _, want := range []float64{0, 0.5, 1, 2} {
		var y []float64
		for _, value := range x {
			y = append(y, 7*math.Pow(value, want))
		}
		if got := Exponent(x, y); math.Abs(got-want) > 1e-9 {
			t.Errorf("got exponent %g, want %g", got, want)
		}
	}
	if got := Exponent([]float64{1, 2, 4}, []float64{3, 0, 12}); math.Abs(got-1) > 1e-9 {
		t.Errorf("got exponent %g, want 1: the point with 0 is left out", got)
	}
	if got := Exponent(x[:1], x[:1]); !math.IsNaN(got) {
		t.Errorf("got exponent %g of one point, want NaN", got)
	}
}
