package sim_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/sim"
)

// BenchmarkSchedule runs schedules with all faults on one processor.
func BenchmarkSchedule(b *testing.B) {
	for _, mode := range modes {
		b.Run(mode, func(b *testing.B) {
			report, err := sim.Sample(b.Context(), sim.Sampling{
				Algorithm: "StatusTable", Processes: 5, Safety: mode, Faults: []string{"all"},
				Schedules: b.N, Seed: 1, Workers: 1,
			})
			if err != nil || report.Violated > 0 {
				b.Fatal(report.Violations, err)
			}
			b.ReportMetric(float64(report.Steps)/float64(b.N), "steps/op")
		})
	}
}

// BenchmarkElection runs the largest elections that the documentation mentions.
func BenchmarkElection(b *testing.B) {
	for _, s := range []sim.Scenario{
		{Algorithm: "StatusTable", Processes: 10_000},
		{Algorithm: "Bully", Processes: 2_000},
	} {
		b.Run(s.Algorithm, func(b *testing.B) {
			s.Latency = sim.Millisecond
			s.Crashed, s.Initiators = []election.ID{election.ID(s.Processes)}, []election.ID{1}
			for b.Loop() {
				if o, err := sim.Run(s); err != nil || !o.Agreed {
					b.Fatal(o, err)
				}
			}
		})
	}
}
