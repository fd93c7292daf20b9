// Package simulate is the command kubectl conclave simulate: elections without a cluster.
package simulate

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/plugin/output"
	"github.com/conclave-dev/conclave/internal/sim"
)

// options are the flags of simulate.
type options struct {
	algorithm        string
	processes        int
	ring             string
	crashed          string
	initiators       string
	recover          int
	latency          time.Duration
	stagger          time.Duration
	safety           string
	seed             uint64
	convergenceEvery int
	output           string

	schedules int
	duration  time.Duration
	faults    string

	// given reports whether a flag is set.
	given func(name string) bool
}

const simulateLong = `Simulate an election among processes in memory.

Process i has priority i. By default, the highest process is down and the lowest
detects it. With --crashed alone, the lowest process that is up detects it. With
--initiators alone, no process is down.

Without --safety, the processes run the textbook election alone. With --safety,
they run it as agents do: the winner must also acquire the office.

With --schedules or --duration, the command runs many elections with random
faults, such as lost messages and crashes, and checks Conclave's invariants
after every step. If one is violated, the exit status is 1 and the output has a
command that replays the schedule.`

const simulateExample = `  # 4 detects that 10 is down: 43 messages
  kubectl conclave simulate --algorithm Bully --crashed 10 --initiators 4

  # 8 recovers; print every message
  kubectl conclave simulate --processes 10 --recover 8 -o transcript

  # A sequence diagram of two concurrent elections on a ring
  kubectl conclave simulate --algorithm RingSkip --initiators 3,6 -o mermaid

  # 100,000 schedules with lost messages and crashes
  kubectl conclave simulate --schedules 100000 --faults loss,crash`

// New returns the command.
func New(sample Sampler) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "simulate",
		Short:   "Simulate elections in memory and show or check them",
		Long:    simulateLong,
		Example: simulateExample,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = cmd.Flags().Changed
			if err := o.chooseNames(); err != nil {
				return err
			}
			if o.given("schedules") || o.given("duration") {
				return runSchedules(cmd, &o, sample)
			}
			return runScenario(cmd, &o)
		},
	}
	o.addFlags(cmd)
	command.CompleteFrom(cmd, "algorithm", catalog.Names())
	command.CompleteFrom(cmd, "safety", office.ModeNames())
	command.CompleteFrom(cmd, "output", simulateOutputs)
	command.CompleteFrom(cmd, "faults", faultChoices())
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.algorithm, "algorithm", "StatusTable", "one of "+strings.Join(catalog.Names(), ", "))
	f.IntVar(&o.processes, "processes", defaultProcesses, "the number of processes; 5 with --schedules")
	f.StringVar(&o.ring, "ring", "", "the order on the ring, such as 3,1,2 (default: ascending)")
	f.StringVar(&o.crashed, "crashed", "",
		"the processes that are down, such as 9,10; initiators know about the highest only")
	f.StringVar(&o.initiators, "initiators", "", "the processes that start an election, such as 4,6")
	f.IntVar(&o.recover, "recover", 0, "the process that was down and recovers; all others are up")
	f.DurationVar(&o.latency, "latency", time.Millisecond, "the time that each message takes")
	f.DurationVar(&o.stagger, "stagger", 0, "the additional wait of an initiator for each process above it")
	f.StringVar(&o.safety, "safety", "", "Available, Majority or Strict (default: none; Majority with --schedules)")
	f.StringVarP(&o.output, "output", "o", output.Table, "one of "+strings.Join(simulateOutputs, ", "))
	f.IntVar(&o.schedules, "schedules", 0, "the number of random schedules to run")
	f.DurationVar(&o.duration, "duration", 0, "the time for which to run random schedules, instead of --schedules")
	f.StringVar(&o.faults, "faults", sim.FaultsThatEnd, "the faults in random schedules, such as loss,crash: all (that "+
		"end), soak (all that break no assumption), none, or some of "+strings.Join(sim.FaultNames(), ", "))
	f.IntVar(&o.convergenceEvery, "convergence-every", 1,
		"check convergence in every nth schedule only; the others end with their last fault")
	f.Uint64Var(&o.seed, "seed", 1, "the seed of the first schedule; each further schedule adds 1")
}

// Default numbers of processes in a single run and in random schedules.
const (
	defaultProcesses         = 10
	defaultScheduleProcesses = 5
)

var simulateOutputs = []string{output.Table, output.Transcript, output.Mermaid}

// chooseNames replaces names in any case by the names of the simulator.
func (o *options) chooseNames() (err error) {
	if o.algorithm, err = command.Choose("algorithm", o.algorithm, catalog.Names()); err != nil {
		return err
	}
	if o.safety != "" {
		o.safety, err = command.Choose("safety mode", o.safety, office.ModeNames())
	}
	return err
}

// checkSafety refuses an empty mode, such as that of an unset variable in a script.
func (o *options) checkSafety(omitted string) error {
	if o.given("safety") && o.safety == "" {
		return command.UsageErrorf("--safety must be Available, Majority or Strict; omit it for %s", omitted)
	}
	return nil
}

// forbid refuses flags that don't apply to this kind of run.
func (o *options) forbid(why string, names ...string) error {
	for _, name := range names {
		if o.given(name) {
			return command.UsageErrorf("--%s %s", name, why)
		}
	}
	return nil
}
