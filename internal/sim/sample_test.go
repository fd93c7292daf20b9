package sim

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestTrySample(t *testing.T) {
	n := 20000
	if s := os.Getenv("N"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	seed := uint64(1)
	if s := os.Getenv("SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	algo := "StatusTable"
	if s := os.Getenv("ALGO"); s != "" {
		algo = s
	}
	faults := []string{"all"}
	if s := os.Getenv("FAULTS"); s != "" {
		faults = strings.Split(s, ",")
	}
	s := Sampling{Algorithm: algo, Processes: 5, Safety: os.Getenv("SAFETY"), Faults: faults, Schedules: n, Seed: seed}
	if n == 1 {
		s.Watch = func(st Step) {
			t.Logf("%d P%d %s", st.At, st.Process, st.Input.Describe())
			for _, m := range st.Output.Send {
				t.Logf("        %s (sent %d v%d)", m.Describe(), m.Hold.Sent, m.Hold.Version)
			}
			for _, e := range st.Output.Events {
				t.Logf("      * %s", e.Describe())
			}
		}
	}
	start := time.Now()
	r, err := Sample(context.Background(), s)
	t.Logf("%d schedules %d violated %d distinct %d steps, %.0f/s err %v", r.Schedules, r.Violated, r.Distinct, r.Steps, float64(r.Schedules)/time.Since(start).Seconds(), err)
	for _, v := range r.Violations {
		t.Logf("%+v", v)
	}
}
