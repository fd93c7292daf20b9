// Package chaos is the command kubectl conclave chaos: it injects faults into a group, or into the candidates of
// another leader.
package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/kindnodes"
	"github.com/conclave-dev/conclave/internal/chaos/live"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/plugin/output"
)

// options are the flags of chaos.
type options struct {
	faults            int
	seed              uint64
	kinds             []string
	pause, timeout    time.Duration
	observe           time.Duration
	output            string
	yes               bool
	check             string
	machines          string
	control           live.Machines
	operatorNamespace string
	leader, selector  string
	failIf            []string
	budgets           []chaos.Budget
}

var chaosOutputs = []string{"table", "json", "markdown", "junit"}

// New returns the command.
func New() *cobra.Command {
	var (
		cluster clusteraccess.Flags
		options options
	)
	cmd := &cobra.Command{
		Use:   "chaos GROUP | chaos --leader SOURCE",
		Short: "Inject faults into a group or a leader, and measure failovers",
		Long: `Inject faults into a group, one after the other. After each fault, wait until the
group has settled, check the invariants, and measure how long it took until the
next coordinator was elected, known by all, in the status, and in the Service.

With --leader, judge any other leader: measure how long it took until another pod
led, how often the lead changed again, and whether two pods led at the same time.
SOURCE says who leads:
  lease/NAME         the holder of a Lease. lease/NAMESPACE/NAME is in another namespace
  label:KEY=VALUE    the pod with this label
  http://PORT/PATH   each pod is asked; a status from 200 to 299 means that it leads
  exec:COMMAND       a shell command is run in each pod; success means that it leads
An answer of http or exec may also be the name of the pod that leads.
With --observe, it injects nothing, and judges the group or the leader while another
tool does.

The exit status is 1 if an invariant was violated, a budget of --fail-if was
exceeded, or all faults were refused.

Faults interrupt the service of the group. Without the label ` + v1.LabelChaos + `=` + v1.ChaosEnabled + `
on the group, and for faults that concern more than the group, --yes is required.

Kinds of faults:
` + describeKinds(),
		Example: `  kubectl conclave chaos ledger --faults 20 --seed 7
  kubectl conclave chaos ledger --kinds pod,force-pod -o markdown > failover.md
  kubectl conclave chaos --leader lease/ledger --kinds force-pod --fail-if 'p99(elected) > 20s'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if options.leader == "" {
				return clusteraccess.RequireGroup(cmd, args)
			}
			if len(args) > 0 {
				return command.UsageErrorf("either a group or --leader can be tested: remove %q or --leader", args[0])
			}
			return nil
		},
		ValidArgsFunction: cluster.CompleteGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			kinds, err := options.parse(cmd)
			if err != nil {
				return err
			}
			return options.run(cmd, &cluster, strings.Join(args, ""), kinds)
		},
	}
	cluster.AddTo(cmd)
	options.addTo(cmd)
	return cmd
}

// describeKinds has a line for each kind of fault.
func describeKinds() string {
	var b strings.Builder
	for _, k := range chaos.Kinds() {
		fmt.Fprintf(&b, "  %-10s %s\n", k.Name, k.Effect)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (o *options) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&o.faults, "faults", 20, "the number of faults")
	flags.Uint64Var(&o.seed, "seed", 1, "the seed of the order of the faults")
	flags.StringSliceVar(&o.kinds, "kinds", nil,
		"the kinds of faults, separated by commas (default: all that are possible)")
	flags.DurationVar(&o.observe, "observe", 0, "inject nothing, and judge for this time what another tool injects")
	flags.DurationVar(&o.pause, "pause", 5*time.Second, "the time between two faults, after the group has settled")
	flags.DurationVar(&o.timeout, "timeout", 3*time.Minute, "the time within which the group must settle after a fault")
	flags.StringVarP(&o.output, "output", "o", "table", "table, json, markdown or junit")
	flags.BoolVarP(&o.yes, "yes", "y", false, "confirm that faults interrupt services")
	flags.StringVar(&o.check, "check", "",
		"a shell command that checks the workload after each fault; it fails if an invariant of the workload is violated")
	flags.StringVar(&o.operatorNamespace, "operator-namespace", "",
		"the namespace of the operator (default: found by its Deployment)")
	flags.StringVar(&o.machines, "machines", "",
		"the program that controls the nodes of a kind cluster on this computer: docker, podman or nerdctl")
	flags.StringVar(&o.leader, "leader", "",
		"what says who leads, in place of a group: lease/NAME, label:KEY=VALUE, http://PORT/PATH or exec:COMMAND")
	flags.StringVar(&o.selector, "selector", "",
		"the labels of the pods that may lead, with --leader (default: those of the pod that a Lease or a label names)")
	flags.StringArrayVar(&o.failIf, "fail-if", nil,
		"fail if this is true of the result, such as 'p99(elected) > 2s' or 'two-leaders > 0'; can be repeated")
	command.CompleteFrom(cmd, "output", chaosOutputs)
	command.CompleteFrom(cmd, "leader", []string{"lease/", "label:", "http://", "exec:"})
	command.CompleteFrom(cmd, "fail-if", []string{"p99(elected) > 2s", "two-leaders > 0", "flaps > 0"})
	command.CompleteFrom(cmd, "kinds", chaos.KindNames())
	command.CompleteFrom(cmd, "machines", kindnodes.Runtimes)
}

// parse checks the flags. Without --kinds, it returns no kinds.
func (o *options) parse(cmd *cobra.Command) ([]chaos.Kind, error) {
	if o.faults < 1 {
		return nil, command.UsageErrorf("--faults must be 1 or more, got %d", o.faults)
	}
	if o.pause < 0 {
		return nil, command.UsageErrorf("--pause must be 0s or longer, got %s", o.pause)
	}
	if o.timeout < time.Second {
		return nil, command.UsageErrorf("--timeout must be 1s or longer, got %s", o.timeout)
	}
	if err := output.Choose(&o.output, chaosOutputs); err != nil {
		return nil, err
	}
	if o.machines != "" {
		var err error
		if o.control, err = live.ParseMachines(o.machines); err != nil {
			return nil, command.UsageErrorf("--machines %s", err)
		}
	}
	if err := o.parseObserve(cmd); err != nil {
		return nil, err
	}
	if err := o.parseLeader(); err != nil {
		return nil, err
	}
	for i, kind := range o.kinds {
		o.kinds[i] = command.Canonical(kind, chaos.KindNames())
	}
	kinds, err := chaos.ParseKinds(o.kinds)
	if err != nil {
		return nil, command.UsageErrorf("--kinds: %s", err)
	}
	for _, k := range kinds {
		if k.OfGroup && o.leader != "" {
			return nil, command.UsageErrorf("--kinds: only groups react to %s: choose others", k.Name)
		}
	}
	return kinds, nil
}

// parseObserve checks --observe: the flags of faults have no effect with it.
func (o *options) parseObserve(cmd *cobra.Command) error {
	switch {
	case !cmd.Flags().Changed("observe"):
		return nil
	case o.observe < time.Second:
		return command.UsageErrorf("--observe must be 1s or longer, got %s", o.observe)
	}
	for _, name := range []string{"faults", "seed", "kinds", "pause", "check", "machines", "yes"} {
		if cmd.Flags().Changed(name) {
			return command.UsageErrorf("--observe injects no faults: remove it or --%s", name)
		}
	}
	return nil
}

// parseLeader checks --leader, and the flags that depend on it.
func (o *options) parseLeader() error {
	seesTwo := true
	if o.leader != "" {
		leader, err := live.ParseLeader(o.leader, "any", nil, nil)
		if err != nil {
			return command.UsageErrorf("--leader %s", err)
		}
		seesTwo = leader.SeesTwo()
	} else if o.selector != "" {
		return command.UsageErrorf("--selector needs --leader")
	}
	for _, text := range o.failIf {
		budget, err := chaos.ParseBudget(text)
		if err != nil {
			return command.UsageErrorf("--fail-if %s", err)
		}
		if why := budget.NotMeasured(o.leader == "", seesTwo, o.observe > 0); why != "" {
			return command.UsageErrorf("--fail-if %q: %s", text, why)
		}
		o.budgets = append(o.budgets, budget)
	}
	return nil
}

func (o *options) run(cmd *cobra.Command, cluster *clusteraccess.Flags, name string, kinds []chaos.Kind) error {
	ctx, stop := command.UntilInterrupted(cmd.Context())
	defer stop()
	run, err := o.prepare(ctx, cluster, name)
	if err != nil {
		return err
	}
	run.Printf = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
	if o.observe > 0 {
		result, err := run.Observe(ctx, o.observe)
		return o.report(cmd.OutOrStdout(), result, err)
	}
	notPossible, err := chooseKinds(ctx, run, kinds)
	if err != nil {
		return err
	}
	if err := o.confirm(ctx, run); err != nil {
		return err
	}
	result, err := run.Do(ctx)
	result.NotPossible = notPossible
	return o.report(cmd.OutOrStdout(), result, err)
}

// report writes the result of a run that ended with err, and returns the error of the command.
func (o *options) report(w io.Writer, result *chaos.Result, err error) error {
	for i := range o.budgets {
		if exceeded := o.budgets[i].Exceeded(result); exceeded != "" && err == nil {
			result.Exceeded = append(result.Exceeded, "budget exceeded: "+exceeded)
		}
	}
	if len(result.Faults) > 0 || err == nil {
		err = errors.Join(err, o.write(w, result))
	}
	switch {
	case err != nil:
		return clusteraccess.RequestError(err)
	case len(result.Violations) > 0:
		return fmt.Errorf("%s", strings.Join(append(slices.Clone(result.Exceeded), result.Verdict()), "\n"))
	case result.Interrupted:
		return command.ErrInterrupted
	case len(result.Exceeded) > 0:
		return fmt.Errorf("%s", strings.Join(result.Exceeded, "\n"))
	case len(result.Summary) == 0 && o.observe == 0:
		return fmt.Errorf("%s: all faults were refused", result.Verdict())
	}
	return nil
}

// prepare connects to the cluster and checks that the group can be tested.
func (o *options) prepare(ctx context.Context, cluster *clusteraccess.Flags, name string) (*live.Run, error) {
	config, err := cluster.RestConfig()
	if err != nil {
		return nil, err
	}
	connected, err := cluster.Connect()
	if err != nil {
		return nil, err
	}
	namespace, err := cluster.Namespace()
	if err != nil {
		return nil, err
	}
	run := &live.Run{
		Client: connected, OperatorNamespace: o.operatorNamespace,
		Seed: o.seed, Faults: o.faults, Pause: o.pause, Timeout: o.timeout, Machines: o.control,
		Check: o.workloadCheck(name, namespace),
	}
	forward := func(ctx context.Context, pod types.NamespacedName, port int) (*portforward.Port, error) {
		return portforward.StartTo(ctx, config, pod, port)
	}
	if o.leader != "" {
		leader, err := live.ParseLeader(o.leader, namespace, forward, live.ExecBy(config))
		if err != nil {
			return nil, err
		}
		if err := leader.Choose(ctx, connected, o.selector); err != nil {
			return nil, clusteraccess.RequestError(err)
		}
		run.Subject = leader
	} else {
		group, err := getTestable(ctx, connected, namespace, name)
		if err != nil {
			return nil, err
		}
		run.Subject = &live.Group{Object: group, Forward: forward}
		if operator, err := clusteraccess.FindOperator(ctx, connected); err == nil {
			run.OperatorNamespace = cmp.Or(run.OperatorNamespace, operator.Namespace)
		}
	}
	if err := run.CheckObservable(ctx); err != nil {
		return nil, clusteraccess.RequestError(err)
	}
	return run, nil
}

// failoverMax is how long a failover may be under way when the command begins.
const failoverMax = 5 * time.Second

// getTestable reads a group, and refuses one that can't fail over.
func getTestable(ctx context.Context, c client.Client, namespace, name string) (*v1.ElectionGroup, error) {
	for began := time.Now(); ; {
		group, err := clusteraccess.GetGroup(ctx, c, namespace, name)
		if err != nil {
			return nil, err
		}
		err = checkTestable(group)
		if err == nil || group.Status.Coordinator != nil || time.Since(began) > failoverMax {
			return group, err
		}
		select {
		case <-ctx.Done():
			return nil, command.ErrInterrupted
		case <-time.After(failoverMax / 20):
		}
	}
}

// checkTestable refuses groups that can't fail over.
func checkTestable(g *v1.ElectionGroup) error {
	members := 0
	if g.Status.Members != nil {
		members = int(*g.Status.Members)
	}
	required, mode := 3, g.Spec.Safety.Mode
	if mode == v1.Available {
		required = 2
	}
	switch {
	case g.Status.Coordinator == nil:
		return fmt.Errorf("group %s has no coordinator; for the reason, run: kubectl conclave explain %s -n %s",
			g.Name, g.Name, g.Namespace)
	case members < required:
		return fmt.Errorf("group %s has %d members, and needs %d to fail over in %s mode: add members",
			g.Name, members, required, mode)
	}
	return nil
}

func (o *options) write(w io.Writer, result *chaos.Result) error {
	switch o.output {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(result)
	case "markdown":
		return result.WriteMarkdown(w)
	case "junit":
		return result.WriteJUnit(w)
	}
	return result.WriteTable(w)
}
