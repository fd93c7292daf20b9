package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/sim"
)

// options are the flags of simulate, as the user wrote them.
type options struct {
	algorithm  string
	processes  int
	ring       string
	crashed    string
	initiators string
	recover    int
	latency    time.Duration
	stagger    time.Duration
	safety     string
	seed       uint64
	output     string

	schedules int
	duration  time.Duration
	faults    string

	// given reports whether the user wrote a flag.
	given func(name string) bool
}

// What may be asked for with -o.
const (
	asTable      = "table"
	asJSON       = "json"
	asTranscript = "transcript"
	asMermaid    = "mermaid"
	asSVG        = "svg"
)

const simulateLong = `Run an election among processes that exist in memory only.

Process i has priority i. If nothing is said about who is down and who starts,
the highest is down and the lowest finds out. --crashed alone: the lowest that
is up finds out. --initiators alone: nobody is down.

Without --safety it is the bare election of the textbook. With it, the election
is wrapped as in the agent, and whoever wins must also get hold of the office.

With --schedules or --duration, many elections are run in which messages are
lost, processes crash and so on, as drawn from --seed, and after every step it
is checked that what Conclave promises holds. If it doesn't, the exit status is
1 and a command is printed that runs the same schedule again.`

const simulateExample = `  # 4 finds out that 10 is down: 43 messages
  kubectl conclave simulate --algorithm Bully --crashed 10 --initiators 4

  # 8 was down and comes back; see every message
  kubectl conclave simulate --processes 10 --recover 8 -o transcript

  # A sequence diagram of two elections at once on a ring
  kubectl conclave simulate --algorithm RingSkip --initiators 3,6 -o mermaid

  # 100,000 schedules in which messages are lost and processes crash
  kubectl conclave simulate --schedules 100000 --faults loss,crash`

func newSimulate(sample sampler) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "simulate",
		Short:   "Run an election in memory and show what it does",
		Long:    simulateLong,
		Example: simulateExample,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = cmd.Flags().Changed
			if o.given("schedules") || o.given("duration") {
				return runSchedules(cmd, &o, sample)
			}
			return runScenario(cmd, &o)
		},
	}
	o.register(cmd)
	completeSimulate(cmd)
	cmd.AddCommand(newCompare())
	return cmd
}

func (o *options) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.algorithm, "algorithm", "StatusTable", "one of "+strings.Join(catalog.Names(), ", "))
	f.IntVar(&o.processes, "processes", defaultProcesses, "how many there are; 5 with --schedules")
	f.StringVar(&o.ring, "ring", "", "their order on the ring, such as 3,1,2 (default: ascending)")
	f.StringVar(&o.crashed, "crashed", "", "those that are down, such as 9,10; the crash of the highest is known to the initiators")
	f.StringVar(&o.initiators, "initiators", "", "those that start an election, such as 4,6")
	f.IntVar(&o.recover, "recover", 0, "one that was down and comes back; everyone else is up")
	f.DurationVar(&o.latency, "latency", time.Millisecond, "what a message takes")
	f.DurationVar(&o.stagger, "stagger", 0, "how much longer an initiator waits for each process above it")
	f.StringVar(&o.safety, "safety", "", "Available, Majority or Strict (default: none; Majority with --schedules)")
	f.StringVarP(&o.output, "output", "o", asTable, "one of "+strings.Join(simulateOutputs, ", "))
	f.IntVar(&o.schedules, "schedules", 0, "run so many random schedules")
	f.DurationVar(&o.duration, "duration", 0, "run random schedules for so long, instead")
	f.StringVar(&o.faults, "faults", "all", "what may go wrong, such as loss,crash: all, none, or some of "+strings.Join(sim.FaultNames(), ", "))
	f.Uint64Var(&o.seed, "seed", 1, "the seed of the first schedule; the others have the next ones")
}

// defaultProcesses is how many processes a scenario has, and defaultSampled a
// random schedule.
const (
	defaultProcesses = 10
	defaultSampled   = 5
)

var simulateOutputs = []string{asTable, asJSON, asTranscript, asMermaid}

func checkOutput(output string, outputs []string) error {
	if slices.Contains(outputs, output) {
		return nil
	}
	return command.UsageErrorf("unknown output %q: choose one of %s", output, strings.Join(outputs, ", "))
}

// checkSafety refuses an empty mode: of a variable that isn't set, in a script.
func (o *options) checkSafety(otherwise string) error {
	if o.given("safety") && o.safety == "" {
		return command.UsageErrorf("--safety must be Available, Majority or Strict; leave it out for %s", otherwise)
	}
	return nil
}

// without refuses flags that have no meaning in this kind of run.
func (o *options) without(why string, names ...string) error {
	for _, name := range names {
		if o.given(name) {
			return command.UsageErrorf("--%s %s", name, why)
		}
	}
	return nil
}
