package main

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
)

// confirm asks whether to break groups that aren't labelled for chaos tests.
func (o *chaosOptions) confirm(ctx context.Context, in io.Reader, out io.Writer, run *live.Run) error {
	if o.yes {
		return nil
	}
	others, err := run.OtherGroups(ctx)
	if err != nil {
		return requestError(err)
	}
	var unlabelled []string
	for _, g := range append([]v1.ElectionGroup{*run.Group}, others...) {
		if g.Labels[v1.LabelChaos] != v1.ChaosEnabled {
			unlabelled = append(unlabelled, g.Name)
		}
	}
	if len(unlabelled) == 0 {
		return nil
	}
	if file, ok := in.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		what := "group"
		if len(unlabelled) > 1 {
			what = "groups"
		}
		return fmt.Errorf("chaos breaks %s %s: add --yes, or label the %s: kubectl label electiongroup %s -n %s %s=%s", what,
			strings.Join(unlabelled, ", "), what, strings.Join(unlabelled, " "), run.Group.Namespace, v1.LabelChaos, v1.ChaosEnabled)
	}
	return ask(in, out, run.Group, run.Faults, run.Kinds, concerned(others, run.Kinds)+o.privilegedPods(run))
}

// concerned says what a run breaks beside the group, or "".
func concerned(others []v1.ElectionGroup, kinds []chaos.Kind) (text string) {
	var names, shared []string
	for i := range others {
		names = append(names, others[i].Name)
	}
	if len(names) > 0 {
		text = fmt.Sprintf("Its pods are also members of other groups: %s.\n", strings.Join(names, ", "))
	}
	for _, k := range kinds {
		if k.Shared {
			shared = append(shared, k.Name)
		}
	}
	if len(shared) > 0 {
		text += fmt.Sprintf("These faults also concern other pods or groups of the cluster: %s.\n", strings.Join(shared, ", "))
	}
	return text
}

// privilegedPods says which privileged pods a run creates, or "".
func (o *chaosOptions) privilegedPods(run *live.Run) string {
	if pods, ok := run.Machines.(*live.Pods); ok && needsMachines(run.Kinds) {
		return fmt.Sprintf("It runs a privileged pod in namespace %s on each node of a member.\n", pods.Namespace)
	}
	return ""
}

func ask(in io.Reader, out io.Writer, g *v1.ElectionGroup, faults int, kinds []chaos.Kind, also string) error {
	var names []string
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	fmt.Fprintf(out, "This injects %d faults (%s) into group %s in namespace %s, which interrupts its service.\n%sContinue? [y/N] ",
		faults, strings.Join(names, ", "), g.Name, g.Namespace, also)
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
func (o *chaosOptions) workloadCheck(g *v1.ElectionGroup) func(context.Context) error {
	if o.check == "" {
		return nil
	}
	return func(ctx context.Context) error {
		check := exec.CommandContext(ctx, "sh", "-c", o.check)
		check.WaitDelay = time.Second // Programs that the shell has started may run on after an interruption.
		check.Env = append(os.Environ(), "GROUP="+g.Name, "NAMESPACE="+g.Namespace)
		output, err := check.CombinedOutput()
		if err == nil || errors.Is(err, exec.ErrWaitDelay) { // It succeeded, although its output isn't closed yet.
			return nil
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
