package main

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

	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/sim"
)

// sampler runs random schedules; it is sim.Sample, except in tests.
type sampler func(context.Context, sim.Sampling) (sim.Report, error)

// noFaults is how --faults says that nothing goes wrong.
const (
	noFaults  = "none"
	allFaults = "all"
)

// runSchedules runs random schedules until they are done, the time is up or the
// user has had enough.
func runSchedules(cmd *cobra.Command, o *options, sample sampler) error {
	s, err := o.sampling()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	if o.output == asTranscript {
		fmt.Fprintf(out, "# %s, seed %d\n", describeSampling(&s), s.Seed)
		transcript := sim.Transcript{To: out}
		s.Watch = transcript.Watch
	}
	user, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(user, stop) // who interrupts twice doesn't want to wait
	ctx := user
	if o.duration > 0 {
		limited, cancel := context.WithTimeout(user, o.duration)
		defer cancel()
		ctx = limited
	}
	bar := onTerminal(cmd.ErrOrStderr(), "schedules", s.Schedules, o.duration)
	s.Progress = bar.report
	debug.SetGCPercent(800) // the worlds are small and used again: collecting rarely costs nothing
	started := time.Now()
	report, err := sample(ctx, s)
	bar.clear()
	if err != nil {
		return err
	}
	found := sampled{Sampling: s, Report: report, took: time.Since(started), interrupted: user.Err() != nil}
	if err := found.write(out, o.output); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return found.verdict()
}

// sampling is what the flags say about random schedules.
func (o *options) sampling() (sim.Sampling, error) {
	s := sim.Sampling{
		Algorithm: o.algorithm, Processes: o.processes, Safety: o.safety, Schedules: o.schedules, Seed: o.seed,
	}
	if err := checkOutput(o.output, simulateOutputs); err != nil {
		return s, err
	}
	err := o.without("is about a single run: a random schedule draws who crashes and when, so leave it out",
		"ring", "crashed", "initiators", "recover", "latency", "stagger")
	if err != nil {
		return s, err
	}
	if err := o.checkSafety("Majority"); err != nil {
		return s, err
	}
	switch {
	case o.given("schedules") && o.given("duration"):
		return s, command.UsageErrorf("--schedules and --duration don't go together: choose one of them")
	case o.given("schedules") && o.schedules < 1:
		return s, command.UsageErrorf("--schedules must be 1 or more, not %d", o.schedules)
	case o.given("duration") && o.duration <= 0:
		return s, command.UsageErrorf("--duration must be above 0, such as 10m, not %v", o.duration)
	case o.output == asMermaid:
		return s, command.UsageErrorf("a random schedule can't be drawn: choose -o table or json, or transcript with --schedules 1")
	case o.output == asTranscript && o.schedules != 1:
		return s, command.UsageErrorf("-o transcript shows one schedule: add --schedules 1, and --seed to say which")
	}
	if o.given("duration") {
		s.Schedules = math.MaxInt32
	}
	if s.Safety == "" {
		s.Safety = "Majority"
	}
	if !o.given("processes") {
		s.Processes = defaultSampled
	}
	s.Faults, err = parseFaults(o.faults)
	return s, err
}

// parseFaults reads names of faults, and gives them in the order in which they
// are documented.
func parseFaults(text string) ([]string, error) {
	known := sim.FaultNames()
	asked := make([]bool, len(known))
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		i := slices.Index(known, name)
		switch {
		case name == allFaults:
			for i := range asked {
				asked[i] = true
			}
		case name == noFaults && strings.TrimSpace(text) == noFaults:
		case i < 0:
			return nil, command.UsageErrorf("unknown fault %q: choose all, none, or some of %s", name, strings.Join(known, ", "))
		default:
			asked[i] = true
		}
	}
	var faults []string
	for i, name := range known {
		if asked[i] {
			faults = append(faults, name)
		}
	}
	return faults, nil
}

// faultsText is what --faults takes for these faults.
func faultsText(faults []string) string {
	switch len(faults) {
	case 0:
		return noFaults
	case len(sim.FaultNames()):
		return allFaults
	}
	return strings.Join(faults, ",")
}
