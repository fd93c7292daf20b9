package simulate

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/plugin/output"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// violationError reports that schedules violated an invariant.
type violationError struct {
	violated, schedules int
	replay              string
}

func (e *violationError) Error() string {
	return fmt.Sprintf("%d of %d schedules violated an invariant; to replay the first one, run: %s",
		e.violated, e.schedules, e.replay)
}

// Sampler runs random schedules: sim.Sample, or a fake in tests.
type Sampler func(context.Context, sim.Sampling) (sim.Report, error)

// noFaults is a value of --faults, besides the names of faults and of sets of faults.
const noFaults = "none"

// faultChoices are the values of --faults.
func faultChoices() []string {
	return append([]string{sim.FaultsThatEnd, sim.SoakFaults, noFaults}, sim.FaultNames()...)
}

// runSchedules runs random schedules until all are done, the time is up or the user interrupts it.
func runSchedules(cmd *cobra.Command, o *options, sample Sampler) error {
	s, err := o.sampling()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	if o.output == output.Transcript {
		fmt.Fprintf(out, "# %s, seed %d\n", describeSampling(&s), s.Seed)
		text := transcript.Text{To: out, Names: election.Numbers}
		s.Watch = text.Watch
	}
	user, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(user, stop) // A second interrupt kills the process.
	ctx := user
	if o.duration > 0 {
		limited, cancel := context.WithTimeout(user, o.duration)
		defer cancel()
		ctx = limited
	}
	debug.SetGCPercent(800) // Simulations are small and reused, so that rare collections cost little memory.
	started := time.Now()
	report, err := sample(ctx, s)
	if err != nil {
		return err
	}
	result := samplingResult{Sampling: s, Report: report, elapsed: time.Since(started), interrupted: user.Err() != nil}
	result.write(out, o.output)
	if err := out.Flush(); err != nil {
		return err
	}
	return result.err()
}

// sampling returns the configuration of random schedules.
func (o *options) sampling() (sim.Sampling, error) {
	s := sim.Sampling{
		Algorithm: o.algorithm, Processes: o.processes, Safety: o.safety, Schedules: o.schedules, Seed: o.seed,
		ConvergenceEvery: o.convergenceEvery,
	}
	if err := output.Choose(&o.output, simulateOutputs); err != nil {
		return s, err
	}
	err := o.forbid("applies to a single run only: random schedules choose crashes and delays themselves, so remove it",
		"ring", "crashed", "initiators", "recover", "latency", "stagger")
	if err != nil {
		return s, err
	}
	if err := o.checkSafety("Majority"); err != nil {
		return s, err
	}
	switch {
	case o.given("schedules") && o.given("duration"):
		return s, command.UsageErrorf("--schedules and --duration are mutually exclusive: remove one of them")
	case o.given("schedules") && o.schedules < 1:
		return s, command.UsageErrorf("--schedules must be 1 or more, got %d", o.schedules)
	case o.given("duration") && o.duration <= 0:
		return s, command.UsageErrorf("--duration must be above 0, such as 10m, got %v", o.duration)
	case o.convergenceEvery < 1:
		return s, command.UsageErrorf("--convergence-every must be 1 or more, got %d", o.convergenceEvery)
	case o.output == output.Mermaid:
		return s, command.UsageErrorf(
			"-o mermaid does not support random schedules: choose table, or transcript with --schedules 1")
	case o.output == output.Transcript && o.schedules != 1:
		return s, command.UsageErrorf("-o transcript supports a single schedule: add --schedules 1, and --seed to choose it")
	}
	if o.given("duration") {
		s.Schedules = math.MaxInt32
	}
	if s.Safety == "" {
		s.Safety = "Majority"
	}
	if !o.given("processes") {
		s.Processes = defaultScheduleProcesses
	}
	s.Faults, err = parseFaults(o.faults)
	return s, err
}

// parseFaults parses names of faults and returns them in the documented order.
func parseFaults(text string) ([]string, error) {
	text = command.Canonical(strings.ReplaceAll(text, " ", ""), faultChoices())
	if text == noFaults {
		return nil, nil
	}
	names := strings.Split(text, ",")
	for _, name := range names {
		if choices := faultChoices(); name == noFaults || !slices.Contains(choices, name) {
			return nil, command.UsageErrorf("unknown fault %q%s: choose all, soak, none, or some of %s", name,
				command.DidYouMean(name, choices), strings.Join(sim.FaultNames(), ", "))
		}
	}
	faults, err := sim.ParseFaults(names)
	return faults.Names(), err
}

// faultsText returns the value of --faults for these faults.
func faultsText(faults []string) string {
	if len(faults) == 0 {
		return noFaults
	}
	return strings.Join(faults, ",")
}
