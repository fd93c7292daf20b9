package simulate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/plugin/output"
	"github.com/conclave-dev/conclave/internal/sim"
)

// samplingResult is the result of running random schedules.
type samplingResult struct {
	sim.Sampling
	sim.Report
	elapsed     time.Duration
	interrupted bool
}

// describeSampling describes the configuration in one line.
func describeSampling(s *sim.Sampling) string {
	return fmt.Sprintf("%s, %d processes, %s, faults: %s", s.Algorithm, s.Processes, s.Safety, faultsText(s.Faults))
}

// replay returns the command that runs the schedule of a seed again.
func (r *samplingResult) replay(seed uint64) string {
	return fmt.Sprintf(
		"kubectl conclave simulate --algorithm %s --processes %d --safety %s --faults %s --schedules 1 --seed %d",
		r.Algorithm, r.Processes, r.Safety, faultsText(r.Faults), seed)
}

func (r *samplingResult) rate() float64 {
	return float64(r.Report.Schedules) / max(r.elapsed.Seconds(), 1e-6)
}

// err returns the error that determines the exit status.
func (r *samplingResult) err() error {
	switch {
	case r.Violated > 0:
		return &violationError{violated: r.Violated, schedules: r.Report.Schedules, replay: r.replay(r.violations()[0].Seed)}
	case r.interrupted:
		return command.ErrInterrupted
	}
	return nil
}

// violations returns the recorded violations, sorted by their seeds.
func (r *samplingResult) violations() []sim.Violation {
	return slices.SortedFunc(slices.Values(r.Violations),
		func(a, b sim.Violation) int { return cmp.Compare(a.Seed, b.Seed) })
}

func (r *samplingResult) write(w io.Writer, format string) {
	if format != output.Transcript {
		r.writeTable(w)
		return
	}
	if r.Violated == 0 {
		fmt.Fprintln(w, "# no promise was broken")
	}
	for _, v := range r.violations() {
		fmt.Fprintf(w, "# broken: %s: %s\n", v.Invariant, v.Detail)
	}
}

func (r *samplingResult) writeTable(w io.Writer) {
	fmt.Fprintf(w, "%s, seeds from %d\n\n", describeSampling(&r.Sampling), r.Seed)
	facts := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	done := fmt.Sprint(r.Report.Schedules)
	if r.interrupted {
		done += " (interrupted)"
	}
	fmt.Fprintf(facts, "SCHEDULES\t%s\n", done)
	if r.ConvergenceEvery > 1 {
		fmt.Fprintf(facts, "CONVERGENCE\tchecked in %d schedules\n", r.Continued)
	}
	fmt.Fprintf(facts, "VIOLATIONS\t%d\n", r.Violated)
	fmt.Fprintf(facts, "STEPS\t%d\n", r.Steps)
	fmt.Fprintf(facts, "SPEED\t%.0f schedules per second\n", r.rate())
	facts.Flush() //nolint:errcheck // as with fmt.Fprint: there is no caller to return it to
	writeOutages(w, r.Outages)
	for _, v := range r.violations() {
		fmt.Fprintf(w, "\nseed %d: %s\n  %s\n  %s\n", v.Seed, v.Invariant, v.Detail, r.replay(v.Seed))
	}
	if more := r.Violated - len(r.Violations); more > 0 {
		fmt.Fprintf(w, "\nThe violations of %d more schedules are not shown.\n", more)
	}
}
