package benchmark

import (
	"testing"
	"time"
)

func TestRanks(t *testing.T) {
	var rounds []time.Duration
	for i := range 200 {
		rounds = append(rounds, time.Duration(200-i)*time.Millisecond)
	}
	if s := NewSeries(rounds); s.Rounds != 200 || s.Median != 100 || s.P99 != 198 || s.Max != 200 || s.All[0] != 200 {
		t.Errorf("of 1 to 200 ms: %+v", s)
	}
	if s := NewSeries(rounds[199:]); s.Median != 1 || s.P99 != 1 || s.Max != 1 {
		t.Errorf("of 1 ms: %+v", s)
	}
	if NewSeries(nil) != nil {
		t.Error("of nothing, something")
	}
}
