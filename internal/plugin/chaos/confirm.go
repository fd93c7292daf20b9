package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/term"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/live"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
)

// confirm asks whether to break groups that aren't labelled for chaos tests, or what belongs to
// others: the owner of a group labels only that.
func (o *options) confirm(ctx context.Context, in io.Reader, out io.Writer, run *live.Run) error {
	if o.yes {
		return nil
	}
	also := sharedFaults(run.Kinds)
	file, ok := in.(*os.File)
	asks := ok && term.IsTerminal(int(file.Fd()))
	group, ok := run.Subject.(*live.Group)
	if !ok {
		if !asks {
			return fmt.Errorf("chaos breaks the pods of %s: add --yes", run.Subject)
		}
		return ask(ctx, in, out, run, "the pods of "+o.leader, also)
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
	if len(unlabelled) == 0 && also == "" {
		return nil
	}
	if !asks {
		return unconfirmed(unlabelled, group.Object.Namespace, also)
	}
	return ask(ctx, in, out, run, fmt.Sprintf("%s in namespace %s", group, group.Object.Namespace), memberships(others)+also)
}

// unconfirmed is the error of a run that needs a confirmation, without a terminal.
func unconfirmed(unlabelled []string, namespace, also string) error {
	switch len(unlabelled) {
	case 0:
		return fmt.Errorf("add --yes, or select other kinds with --kinds. %s", strings.ReplaceAll(strings.TrimSpace(also), "\n", " "))
	case 1:
		return fmt.Errorf("chaos breaks group %s: add --yes, or label the group: kubectl label electiongroup %[1]s -n %s %s=%s",
			unlabelled[0], namespace, v1.LabelChaos, v1.ChaosEnabled)
	}
	return fmt.Errorf("chaos breaks groups %s: add --yes, or label the groups: kubectl label electiongroup %s -n %s %s=%s",
		strings.Join(unlabelled, ", "), strings.Join(unlabelled, " "), namespace, v1.LabelChaos, v1.ChaosEnabled)
}

// memberships says which other groups a run breaks, or "".
func memberships(others []v1.ElectionGroup) string {
	if len(others) == 0 {
		return ""
	}
	var names []string
	for i := range others {
		names = append(names, others[i].Name)
	}
	return fmt.Sprintf("Its pods are also members of other groups: %s.\n", strings.Join(names, ", "))
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
	return fmt.Sprintf("These faults also concern other pods or groups of the cluster: %s.\n", strings.Join(shared, ", "))
}

func ask(ctx context.Context, in io.Reader, out io.Writer, run *live.Run, subject, also string) error {
	var names []string
	for _, k := range run.Kinds {
		names = append(names, k.Name)
	}
	fmt.Fprintf(out, "This injects %d faults (%s) into %s, which interrupts its service.\n%sContinue? [y/N] ",
		run.Faults, strings.Join(names, ", "), subject, also)
	answered := make(chan error, 1)
	go func() { answered <- readConfirmation(in) }()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return command.ErrInterrupted
	}
}

func readConfirmation(in io.Reader) error {
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot read the confirmation: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("not confirmed: nothing was changed")
	}
	return nil
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
