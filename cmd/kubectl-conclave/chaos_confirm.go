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

// confirm asks whether to break a group that isn't labelled for chaos tests.
func (o *chaosOptions) confirm(in io.Reader, out io.Writer, run *live.Run) error {
	g := run.Group
	if o.yes || g.Labels[v1.LabelChaos] == v1.ChaosEnabled {
		return nil
	}
	if file, ok := in.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		return fmt.Errorf("chaos breaks group %s: add --yes, or label the group: kubectl label electiongroup %s -n %s %s=%s",
			g.Name, g.Name, g.Namespace, v1.LabelChaos, v1.ChaosEnabled)
	}
	return ask(in, out, g, run.Faults, run.Kinds, o.privilegedPods(run))
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
