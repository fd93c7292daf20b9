package benchmark

import (
	"os"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
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

func TestUsageOfThisProcess(t *testing.T) {
	before, err := UsageOf(os.Getpid())
	must.Succeed(t, err)
	if before.Resident < 1<<20 || before.Peak < before.Resident/2 || before.CPU <= 0 {
		t.Errorf("got usage %+v, want positive values", before)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		after, err := UsageOf(os.Getpid())
		must.Succeed(t, err)
		if after.CPU > before.CPU {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the CPU time didn't increase within a minute")
		}
	}
	if _, err := UsageOf(-1); err == nil {
		t.Error("got no error for process -1")
	}
}
