package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/conclave-dev/conclave/internal/sim"
)

// sampled is what random schedules showed.
type sampled struct {
	sim.Sampling
	sim.Report
	took        time.Duration
	interrupted bool
}

// describeSampling says in one line what is run.
func describeSampling(s *sim.Sampling) string {
	return fmt.Sprintf("%s, %d processes, %s, faults: %s", s.Algorithm, s.Processes, s.Safety, faultsText(s.Faults))
}

// replay is the command that runs one schedule again.
func (s *sampled) replay(seed uint64) string {
	return fmt.Sprintf("kubectl conclave simulate --algorithm %s --processes %d --safety %s --faults %s --schedules 1 --seed %d",
		s.Algorithm, s.Processes, s.Safety, faultsText(s.Faults), seed)
}

func (s *sampled) rate() float64 { return float64(s.Report.Schedules) / max(s.took.Seconds(), 1e-6) }

// distinct is how many traces there were, as far as can be told: the estimate
// may be above what is possible.
func (s *sampled) distinct() uint64 { return min(s.Distinct, uint64(max(0, s.Report.Schedules))) }

// verdict is the error that the exit status tells.
func (s *sampled) verdict() error {
	switch {
	case s.Violated > 0:
		return &broken{violated: s.Violated, schedules: s.Report.Schedules, replay: s.replay(s.violations()[0].Seed)}
	case s.interrupted:
		return &interrupted{}
	}
	return nil
}

// violations are those that are told, by their seeds.
func (s *sampled) violations() []sim.Violation {
	return slices.SortedFunc(slices.Values(s.Violations), func(a, b sim.Violation) int { return cmp.Compare(a.Seed, b.Seed) })
}

func (s *sampled) write(w io.Writer, output string) error {
	switch output {
	case asJSON:
		return s.writeJSON(w)
	case asTranscript:
		if s.Violated == 0 {
			fmt.Fprintln(w, "# no promise was broken")
		}
		for _, v := range s.violations() {
			fmt.Fprintf(w, "# broken: %s: %s\n", v.Invariant, v.Detail)
		}
		return nil
	}
	s.writeTable(w)
	return nil
}

func (s *sampled) writeJSON(w io.Writer) error {
	type violation struct {
		Seed      uint64 `json:"seed"`
		Invariant string `json:"invariant"`
		Detail    string `json:"detail"`
		Replay    string `json:"replay"`
	}
	told := make([]violation, 0, len(s.Violations))
	for _, v := range s.violations() {
		told = append(told, violation{v.Seed, v.Invariant, v.Detail, s.replay(v.Seed)})
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(struct {
		Algorithm          string      `json:"algorithm"`
		Processes          int         `json:"processes"`
		Safety             string      `json:"safety"`
		Faults             []string    `json:"faults"`
		Seed               uint64      `json:"seed"`
		Schedules          int         `json:"schedules"`
		Interrupted        bool        `json:"interrupted"`
		Violated           int         `json:"violated"`
		Violations         []violation `json:"violations"`
		DistinctTraces     uint64      `json:"distinctTraces"`
		Steps              uint64      `json:"steps"`
		ElapsedMillis      int64       `json:"elapsedMillis"`
		SchedulesPerSecond int64       `json:"schedulesPerSecond"`
	}{
		s.Algorithm, s.Processes, s.Safety, append([]string{}, s.Faults...), s.Seed, s.Report.Schedules, s.interrupted,
		s.Violated, told, s.distinct(), s.Steps, s.took.Milliseconds(), int64(s.rate()),
	})
}

func (s *sampled) writeTable(w io.Writer) {
	fmt.Fprintf(w, "%s, seeds from %d\n\n", describeSampling(&s.Sampling), s.Seed)
	facts := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	done := fmt.Sprint(s.Report.Schedules)
	if s.interrupted {
		done += ", then interrupted"
	}
	fmt.Fprintf(facts, "SCHEDULES\t%s\n", done)
	fmt.Fprintf(facts, "VIOLATIONS\t%d\n", s.Violated)
	fmt.Fprintf(facts, "DISTINCT TRACES\tabout %d\n", s.distinct())
	fmt.Fprintf(facts, "STEPS\t%d\n", s.Steps)
	fmt.Fprintf(facts, "SPEED\t%.0f schedules per second\n", s.rate())
	facts.Flush() //nolint:errcheck // as with fmt.Fprint: nobody is left to be told
	for _, v := range s.violations() {
		fmt.Fprintf(w, "\nseed %d: %s\n  %s\n  %s\n", v.Seed, v.Invariant, v.Detail, s.replay(v.Seed))
	}
	if more := s.Violated - len(s.Violations); more > 0 {
		fmt.Fprintf(w, "\nThose of %d more schedules are left out.\n", more)
	}
}
