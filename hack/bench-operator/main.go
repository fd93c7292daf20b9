// Command bench-operator measures the operator with many groups. Run it with `make bench-operator`. The comments of
// type Scale define the two moments between which each duration is measured.
package main

import (
	"fmt"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

func main() {
	disableLogs()
	benchmark.Main(newRoot())
}

// disableLogs discards the logs of the libraries. They return errors too.
func disableLogs() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
}

// options contains the values of the flags.
type options struct {
	// settle is the pause before a measurement, in which earlier work finishes.
	settle time.Duration

	groups, members int
	rate            float64
	elections       time.Duration
	idle            time.Duration
	memoryLimit     string
}

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "bench-operator", Short: "Measure the operator on this machine", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			report, err := measure(command.Context(), &o, command.ErrOrStderr())
			if err != nil {
				return err
			}
			return benchmark.Print(command.OutOrStdout(), report)
		},
	}
	flags := root.Flags()
	flags.DurationVar(&o.settle, "settle", 5*time.Second, "pause before each measurement, in which earlier work finishes")
	flags.IntVar(&o.groups, "groups", 1000, "number of groups")
	flags.IntVar(&o.members, "members", 5, "number of members of each group")
	flags.Float64Var(&o.rate, "rate", 50, "elections per second")
	flags.DurationVar(&o.elections, "elections", time.Minute, "how long to run elections")
	flags.DurationVar(&o.idle, "idle", time.Minute, "how long to count the requests of an idle manager")
	flags.StringVar(&o.memoryLimit, "memory-limit", "",
		"GOMEMLIMIT of the manager, such as 600MiB (default that of the manifest)")
	return root
}

func (o *options) check() error {
	if o.groups < 1 || o.members < 1 || o.groups*o.members > maxMembers {
		return fmt.Errorf(
			"--groups and --members must be 1 or more, with at most %d members in all, got --groups %d --members %d",
			maxMembers, o.groups, o.members)
	}
	if o.rate <= 0 {
		return fmt.Errorf("--rate must be above 0, got %g", o.rate)
	}
	return o.checkFileLimit()
}

// spareFiles is for what this program and the manager open beside the connections between them.
const spareFiles = 500

// checkFileLimit checks that a process may open a connection for each member.
func (o *options) checkFileLimit() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("cannot read the limit of open files: %w", err)
	}
	if needed := o.groups*o.members + spareFiles; uint64(needed) > limit.Max { //nolint:gosec // It is positive.
		return fmt.Errorf("%d members need %d open files, but the limit is %d: raise it by ulimit -n, or use fewer groups",
			o.groups*o.members, needed, limit.Max)
	}
	return nil
}
