package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/live"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
)

// confirm returns an error if the user must confirm the faults with --yes: those of groups that aren't labelled for
// chaos tests, and those that break what belongs to others. The owner of a group labels only that.
func (o *options) confirm(ctx context.Context, run *live.Run) error {
	if o.yes {
		return nil
	}
	group, ok := run.Subject.(*live.Group)
	if !ok {
		return fmt.Errorf("chaos breaks the pods of %s: add --yes", run.Subject)
	}
	others, err := group.Others(ctx, run.Client)
	if err != nil {
		return clusteraccess.RequestError(err)
	}
	var unlabelled []string
	for _, g := range append([]v1.ElectionGroup{*group.Object}, others...) {
		if g.Labels[v1.LabelChaos] != v1.ChaosEnabled {
			unlabelled = append(unlabelled, g.Name)
		}
	}
	also := sharedFaults(run.Kinds)
	switch {
	case len(unlabelled) == 1:
		return fmt.Errorf(
			"chaos breaks group %s: add --yes, or label the group: kubectl label electiongroup %[1]s -n %s %s=%s",
			unlabelled[0], group.Object.Namespace, v1.LabelChaos, v1.ChaosEnabled)
	case len(unlabelled) > 1:
		return fmt.Errorf(
			"chaos breaks groups %s: add --yes, or label the groups: kubectl label electiongroup %s -n %s %s=%s",
			strings.Join(unlabelled, ", "), strings.Join(unlabelled, " "), group.Object.Namespace,
			v1.LabelChaos, v1.ChaosEnabled)
	case also != "":
		return fmt.Errorf("add --yes, or select other kinds with --kinds. %s", also)
	}
	return nil
}

// sharedFaults says which faults break more than the group, or "".
func sharedFaults(kinds []chaos.Kind) string {
	var shared []string
	for _, k := range kinds {
		if k.Shared {
			shared = append(shared, k.Name)
		}
	}
	if len(shared) == 0 {
		return ""
	}
	return fmt.Sprintf("These faults also concern other pods or groups of the cluster: %s.", strings.Join(shared, ", "))
}

// workloadCheck returns a function that runs the command of --check.
func (o *options) workloadCheck(group, namespace string) func(context.Context) error {
	if o.check == "" {
		return nil
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		check := exec.CommandContext(ctx, "sh", "-c", o.check)
		check.WaitDelay = time.Second // Programs that the shell has started may run on after an interruption.
		check.Env = append(os.Environ(), "GROUP="+group, "NAMESPACE="+namespace)
		output, err := check.CombinedOutput()
		if err == nil || errors.Is(err, exec.ErrWaitDelay) { // It succeeded, although its output isn't closed yet.
			return nil
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("the command of --check took longer than --timeout (%s)", o.timeout)
		}
		if last := lastLine(string(output)); last != "" {
			return errors.New(last)
		}
		return fmt.Errorf("the command of --check failed: %w", err)
	}
}

// lastLine returns the last line that isn't kubectl's own: kubectl exec adds one if the command in the pod fails.
func lastLine(output string) (last string) {
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "command terminated with exit code") {
			last = line
		}
	}
	return last
}
