// Package stepdown is the command kubectl conclave step-down: the coordinator hands over.
package stepdown

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// New returns the command.
func New() *cobra.Command {
	var (
		cluster clusteraccess.Flags
		to      string
	)
	cmd := &cobra.Command{
		Use:   "step-down GROUP",
		Short: "Make the coordinator hand over to another member",
		Long: `Make the coordinator of a group hand over. Its application stops first, for
which it has the group's drain timeout; then the next coordinator starts. If no
member can take over, nothing changes.

The request goes to the coordinator's agent through a forwarded port. With
preemption, a former coordinator of higher priority takes over again; the output
says when.

Permissions: get electiongroups; create pods/portforward. If you may patch the
pod, history and Events name you: the command writes GROUP/TERM USER to its
annotation conclave.dev/step-down-by.`,
		Example: `  kubectl conclave step-down ledger
  kubectl conclave step-down ledger --to ledger-1`,
		Args:              clusteraccess.RequireGroup,
		ValidArgsFunction: cluster.CompleteGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			group, err := cluster.Group(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			forward, err := cluster.Forwarder()
			if err != nil {
				return err
			}
			connected, err := cluster.Connect()
			if err != nil {
				return err
			}
			cluster.WarnOfSilentOperator(cmd)
			return Do(cmd.Context(), cmd.OutOrStdout(), connected, group, to, forward)
		},
	}
	cluster.AddTo(cmd)
	cmd.Flags().StringVar(&to, "to", "",
		"the pod of the next coordinator (default: the eligible member of the highest priority)")
	command.CompleteWith(cmd, "to", cluster.CompleteMember)
	return cmd
}

// Do makes the coordinator hand over, and prints the result.
func Do(ctx context.Context, out io.Writer, c ctrlclient.Client, g *v1.ElectionGroup, to string,
	forward clusteraccess.PortForwarder,
) error {
	before := g.Status.Coordinator
	if before == nil {
		return fmt.Errorf("group %s has no coordinator to step down; for the reason, run: kubectl conclave explain %s -n %s",
			g.Name, g.Name, g.Namespace)
	}
	if err := checkSuccessor(g, to); err != nil {
		return err
	}
	timeout := stepDownTimeout(g)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	port, err := forward(ctx, types.NamespacedName{Namespace: g.Namespace, Name: before.Pod})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("cannot forward a port to pod %s/%s within %s", g.Namespace, before.Pod, timeout)
	case err != nil:
		return err
	}
	defer port.Close()
	takeBack := nameUser(ctx, c, g)
	after, err := requestStepDown(ctx, port.URL+control.GroupPath(g.Name), before.Pod, to)
	if err != nil {
		takeBack()
		return port.Annotate(explainRefusal(g, to, err))
	}
	took := ""
	if j, err := clusteraccess.ReadJournal(ctx, port, before.Pod, g.Name); err == nil {
		if gap, known := gapIn(j, after); known {
			took = "; failover took " + v1.FormatGap(gap)
		}
	}
	fmt.Fprintf(out, "%s leads in term %d%s\n", after.Coordinator, after.Term, took)
	if text := preemptionWarning(g, before, &after); text != "" {
		fmt.Fprintln(out, text)
	}
	return nil
}

// stepDownTimeout is the group's drain timeout, for the application to stop, plus time for everything else.
func stepDownTimeout(g *v1.ElectionGroup) time.Duration {
	drain := 5 * time.Second
	if millis := g.Spec.Timing.DrainMillis; millis != nil {
		drain = time.Duration(*millis) * time.Millisecond
	}
	return drain + 15*time.Second
}

// checkSuccessor checks the pod that --to names.
func checkSuccessor(g *v1.ElectionGroup, to string) error {
	if to == "" {
		return nil
	}
	if to == g.Status.Coordinator.Pod {
		return command.UsageErrorf("--to must name another member: %s is the coordinator already", to)
	}
	var candidates []string
	for _, p := range g.Status.Processes {
		if p.Priority > 0 && p.Pod != g.Status.Coordinator.Pod {
			candidates = append(candidates, p.Pod)
		}
	}
	switch {
	case slices.Contains(candidates, to):
		return nil
	case len(candidates) == 0:
		return command.UsageErrorf("--to: %s has no other member with a priority above 0", g.Name)
	}
	return command.UsageErrorf("--to must be a member of %s with a priority above 0 (%s), got %q", g.Name,
		describe.JoinNames(candidates, "or"), to)
}

// explainRefusal adds why the member that --to names isn't ready, if the status says so.
func explainRefusal(g *v1.ElectionGroup, to string, err error) error {
	i := slices.IndexFunc(g.Status.Processes, func(p v1.Process) bool { return p.Pod == to })
	if i < 0 || g.Status.Processes[i].Reason == "" || !strings.HasSuffix(err.Error(), control.NotReady) {
		return err
	}
	p := &g.Status.Processes[i]
	if p.Reason == v1.ProcessNotEligible && p.Message != "" {
		return &ConflictError{fmt.Errorf("%s is not eligible: %s", to, strings.ToLower(p.Message[:1])+p.Message[1:])}
	}
	return &ConflictError{fmt.Errorf("%w (%s)", err, describe.Reason(p))}
}

// requestStepDown sends the request to the agent in a pod, which serves a group at a URL, and returns the state in
// which another member leads.
func requestStepDown(ctx context.Context, url, pod, to string) (client.State, error) {
	var after client.State
	body, err := json.Marshal(map[string]string{"to": to})
	if err != nil {
		return after, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/step-down", bytes.NewReader(body))
	if err != nil {
		return after, err
	}
	status, answer, err := clusteraccess.RequestAgent(request, pod, 64<<10)
	if err != nil {
		return after, err
	}
	if status != http.StatusOK {
		err := fmt.Errorf("the agent in pod %s refused to step down: %w", pod, clusteraccess.ResponseError(answer, status))
		if status == http.StatusConflict {
			err = &ConflictError{err}
		}
		return after, err
	}
	if err := json.Unmarshal(answer, &after); err != nil {
		return after, fmt.Errorf("cannot parse the response of the agent in pod %s, %.100q: %w", pod, answer, err)
	}
	return after, nil
}

// ConflictError is the refusal of a request that the agent may accept later, such as
// when a member has become ready to take over.
type ConflictError struct{ error }

func (e *ConflictError) Unwrap() error { return e.error }

// gapIn returns how long the former coordinator knew no coordinator, according to its journal.
func gapIn(j *journal.Journal, after client.State) (gap time.Duration, known bool) {
	var resigned time.Time
	for i := range j.Steps {
		for _, event := range j.Steps[i].Events {
			switch {
			case event.Kind == "resigns":
				resigned = j.Steps[i].At
			case event.Kind == "recognised" && event.Term == after.Term && event.Peer == after.Coordinator && !resigned.IsZero():
				return j.Steps[i].At.Sub(resigned), true
			}
		}
	}
	return 0, false
}

// preemptionWarning warns that the former coordinator will take over again.
func preemptionWarning(g *v1.ElectionGroup, before *v1.Coordinator, after *client.State) string {
	if g.Spec.Preemption.Policy == v1.PreemptNever || int64(before.Priority) <= int64(after.Priority) {
		return ""
	}
	return fmt.Sprintf("%s has a higher priority (%d): it is ineligible for %g s, then takes over again if it is healthy "+
		"(spec.preemption.policy: %s)",
		before.Pod, before.Priority, g.Spec.Preemption.Stable().Seconds(), g.Spec.Preemption.Policy)
}
