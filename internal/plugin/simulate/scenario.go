package simulate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/plugin/output"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// runScenario simulates one election.
func runScenario(cmd *cobra.Command, o *options) error {
	if err := output.Choose(&o.output, simulateOutputs); err != nil {
		return err
	}
	if err := o.forbid("applies to random schedules only: add --schedules", "faults", "seed",
		"convergence-every"); err != nil {
		return err
	}
	if err := o.checkSafety("the election alone"); err != nil {
		return err
	}
	s, err := o.scenario()
	if err != nil {
		return err
	}
	if err := s.Validate(); err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	if err := writeScenario(out, s, o); err != nil {
		return errors.Join(err, out.Flush())
	}
	return out.Flush()
}

func writeScenario(w io.Writer, s sim.Scenario, o *options) error {
	switch o.output {
	case output.Transcript:
		return writeTranscript(w, s)
	case output.Mermaid:
		return writeMermaid(w, s)
	}
	outcome, err := sim.Run(s)
	if err != nil {
		return err
	}
	writeOutcomeTable(w, &s, &outcome, o.isDefault())
	return nil
}

func writeMermaid(w io.Writer, s sim.Scenario) error {
	drawn := transcript.Mermaid{
		Title: s.Describe(), Ring: s.Order(),
		Down: func(id election.ID) bool { return slices.Contains(s.Crashed, id) },
		Lost: func(m *election.Message) bool { return s.Unreachable(m.To) },
	}
	s.Watch = drawn.Watch
	if _, err := sim.Run(s); err != nil {
		return err
	}
	_, err := drawn.WriteTo(w)
	return err
}

func writeTranscript(w io.Writer, s sim.Scenario) error {
	fmt.Fprintf(w, "# %s\n", s.Describe())
	text := transcript.Text{To: w, Names: election.Numbers, Note: s.NoteLost}
	s.Watch = text.Watch
	outcome, err := sim.Run(s)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "# %s\n# %s\n", outcome.Describe(), countsLine(&outcome))
	return nil
}

// scenario returns the scenario of the flags, with defaults for what they omit.
func (o *options) scenario() (sim.Scenario, error) {
	s := sim.Scenario{
		Algorithm: o.algorithm, Processes: o.processes, Safety: o.safety, Recover: election.ID(max(0, o.recover)),
	}
	if err := s.ValidateSize(); err != nil {
		return s, err // The messages below need a valid range of priorities.
	}
	if o.given("recover") && (o.recover < 1 || o.recover > sim.MaxProcesses) {
		return s,
			command.UsageErrorf("--recover must be the priority of a process, from 1 to %d, got %d", o.processes, o.recover)
	}
	var err error
	for _, f := range []struct {
		name, text string
		ids        *[]election.ID
	}{{"ring", o.ring, &s.Ring}, {"crashed", o.crashed, &s.Crashed}, {"initiators", o.initiators, &s.Initiators}} {
		if *f.ids, err = parseIDs(f.name, f.text, o.processes); err != nil {
			return s, err
		}
	}
	if o.given("ring") && len(s.Ring) == 0 {
		return s, command.UsageErrorf("--ring must name every process once; omit it for ascending order")
	}
	if s.Latency, err = ticks("latency", o.latency, time.Microsecond); err != nil {
		return s, err
	}
	if s.Stagger, err = ticks("stagger", o.stagger, 0); err != nil {
		return s, err
	}
	o.setDefaults(&s)
	return s, nil
}

// setDefaults sets the crashed processes and the initiators that the flags omit.
func (o *options) setDefaults(s *sim.Scenario) {
	if s.Recover != election.None || s.Processes > sim.MaxProcesses {
		return
	}
	if o.isDefault() && s.Processes > 1 {
		s.Crashed = []election.ID{election.ID(s.Processes)}
	}
	if o.given("initiators") {
		return
	}
	down := make([]bool, max(0, s.Processes)+1)
	for _, id := range s.Crashed {
		if int(id) < len(down) {
			down[id] = true
		}
	}
	if lowest := slices.Index(down[1:], false); lowest >= 0 {
		s.Initiators = []election.ID{election.ID(lowest + 1)}
	}
}

// isDefault reports whether no flag selects crashed processes, initiators or a process to recover.
func (o *options) isDefault() bool {
	return !o.given("crashed") && !o.given("initiators") && !o.given("recover")
}

// ticks converts a duration to the simulator's ticks.
func ticks(name string, d, least time.Duration) (election.Tick, error) {
	if d < least || d > time.Hour {
		return 0, command.UsageErrorf("--%s must be from %v to 1h, got %v", name, least, d)
	}
	return election.Tick(d.Microseconds()) * sim.Microsecond, nil
}

// parseIDs parses priorities that are separated by commas.
func parseIDs(name, text string, processes int) ([]election.ID, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var ids []election.ID
	for field := range strings.SplitSeq(text, ",") {
		field = strings.TrimSpace(field)
		n, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			return nil,
				command.UsageErrorf("--%s must be priorities from 1 to %d, separated by commas, got %q", name, processes, field)
		}
		ids = append(ids, election.ID(n))
	}
	return ids, nil
}
