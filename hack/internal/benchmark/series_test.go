package benchmark

import (
	"testing"
	"time"
)

func TestSeriesPercentiles(t *testing.T) {
	var rounds []time.Duration
	for i := range 200 {
		rounds = append(rounds, time.Duration(200-i)*time.Millisecond)
	}
	if s := NewSeries(rounds); s.Rounds != 200 || s.Median != 100 || s.P99 != 198 || s.Max != 200 {
		t.Errorf("got %+v for rounds of 1 to 200 ms", s)
	}
	if s := NewSeries(rounds[199:]); s.Median != 1 || s.P99 != 1 || s.Max != 1 {
		t.Errorf("got %+v for one round of 1 ms", s)
	}
	if NewSeries(nil) != nil {
		t.Error("got a series for no rounds, want nil")
	}
}
