// Command bench-operator measures the operator, and beside it what people use
// today: a Lease. `make bench-operator` runs it; what is measured, and between
// which two moments, is written at each part.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	quieten()
	err := newRoot().ExecuteContext(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// quieten has the libraries log nothing: what matters comes back as an error.
func quieten() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
}

// The parts.
const (
	leasePart   = "lease"
	scalePart   = "scale"
	clusterPart = "cluster"
)

var allParts = []string{leasePart, scalePart, clusterPart}

// options are what the flags say.
type options struct {
	parts  []string
	output string
	// settle is a while in which what was begun comes to its end.
	settle time.Duration

	leaseRounds int
	leaseIdle   time.Duration

	groups, members int
	rate            float64
	elections       time.Duration
	idle            time.Duration
	leaderElect     bool
	bystanders      int
	logs            string
	profile         string

	kills, deletions, handOvers int
	clusterIdle                 time.Duration
	keep                        bool
}

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "bench-operator", Short: "Measure the operator on this machine", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			report, err := measure(command.Context(), &o, command.ErrOrStderr())
			if err != nil {
				return err
			}
			return benchmark.Write(command.OutOrStdout(), o.output, report)
		},
	}
	flags := root.Flags()
	flags.StringSliceVar(&o.parts, "part", allParts, "what to measure: lease, scale, cluster")
	flags.StringVarP(&o.output, "output", "o", "table", "table or json")
	flags.DurationVar(&o.settle, "settle", 5*time.Second, "how long is waited before something is counted, until what was begun before has come to its end")
	flags.IntVar(&o.leaseRounds, "lease-rounds", 2, "lease: how often its leader is killed")
	flags.DurationVar(&o.leaseIdle, "lease-idle", time.Minute, "lease: how long requests are counted")
	flags.IntVar(&o.groups, "groups", 1000, "scale: how many groups")
	flags.IntVar(&o.members, "members", 5, "scale: how many members in each")
	flags.Float64Var(&o.rate, "rate", 50, "scale: elections a second")
	flags.DurationVar(&o.elections, "elections", time.Minute, "scale: how long there are elections")
	flags.DurationVar(&o.idle, "idle", time.Minute, "scale: how long requests of an idle manager are counted")
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "scale: the manager holds a Lease, as it does when deployed")
	flags.IntVar(&o.bystanders, "bystanders", 0, "scale: how many pods there are that are no members of anything")
	flags.StringVar(&o.logs, "manager-log", "", "scale: the file for the manager's log; a temporary one if empty, which is shown if the manager fails")
	flags.StringVar(&o.profile, "profile", "", "scale: the file for a profile of the API server while there are elections")
	flags.IntVar(&o.kills, "kills", 30, "cluster: how often the coordinator's agent is killed")
	flags.IntVar(&o.deletions, "deletions", 5, "cluster: how often the coordinator's pod is deleted by force")
	flags.IntVar(&o.handOvers, "hand-overs", 5, "cluster: how often it is deleted with notice")
	flags.DurationVar(&o.clusterIdle, "cluster-idle", 5*time.Minute, "cluster: how long requests of an idle operator are counted")
	flags.BoolVar(&o.keep, "keep", false, "cluster: leave it running")
	root.AddCommand(newCandidateCommand())
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

func (o *options) check() error {
	if err := benchmark.CheckFormat(o.output); err != nil {
		return err
	}
	for _, part := range o.parts {
		if !slices.Contains(allParts, part) {
			return fmt.Errorf("--part %s: choose from %s", part, strings.Join(allParts, ", "))
		}
	}
	if o.groups < 1 || o.members < 1 || o.groups*o.members > maxMembers {
		return fmt.Errorf("--groups %d --members %d: both must be 1 or more, and there are addresses for %d members", o.groups, o.members, maxMembers)
	}
	for flag, number := range map[string]int{
		"lease-rounds": o.leaseRounds, "bystanders": o.bystanders, "kills": o.kills, "deletions": o.deletions, "hand-overs": o.handOvers,
	} {
		if number < 0 {
			return fmt.Errorf("--%s %d: it must be 0 or more", flag, number)
		}
	}
	if o.rate <= 0 {
		return fmt.Errorf("--rate %g: it must be above 0", o.rate)
	}
	if slices.Contains(o.parts, clusterPart) && os.Getuid() != 0 {
		return fmt.Errorf("a cluster takes root: use sudo, or leave it out with --part lease,scale")
	}
	return nil
}
