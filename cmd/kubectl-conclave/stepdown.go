package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/cli/command"
)

// reach makes a tunnel to the agent in a pod.
type reach func(ctx context.Context, pod types.NamespacedName) (*tunnel, error)

func newStepDown() *cobra.Command {
	var (
		chosen cluster
		to     string
	)
	cmd := &cobra.Command{
		Use:   "step-down GROUP",
		Short: "Have the coordinator hand over, to the next one or to a pod",
		Long: `Have the coordinator of a group hand over. Its application is told to stop, and
is waited for; only then does the next one start.

The coordinator's agent is asked through a forwarded port, with your own rights:
it takes those for kubectl port-forward. With preemption, whoever stepped down
takes over again if its priority is higher; what is printed says when.`,
		Example: `  kubectl conclave step-down ledger
  kubectl conclave step-down ledger --to ledger-1`,
		Args:              oneGroup,
		ValidArgsFunction: chosen.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			groups, err := chosen.groups(cmd.Context(), args, false)
			if err != nil {
				return err
			}
			config, err := chosen.config()
			if err != nil {
				return err
			}
			return stepDown(cmd.Context(), cmd.OutOrStdout(), &groups[0], to, func(ctx context.Context, pod types.NamespacedName) (*tunnel, error) {
				return dig(ctx, config, pod)
			})
		},
	}
	chosen.register(cmd.Flags())
	cmd.Flags().StringVar(&to, "to", "", "the pod that shall lead (default: the highest that can)")
	return cmd
}

// stepDown has the coordinator hand over, and says what came of it.
func stepDown(ctx context.Context, out io.Writer, g *v1.ElectionGroup, to string, reach reach) error {
	before := g.Status.Coordinator
	if before == nil {
		return fmt.Errorf("nobody leads %s, so nobody can step down: kubectl conclave explain %s -n %s tells why", g.Name, g.Name, g.Namespace)
	}
	if err := checkSuccessor(g, to); err != nil {
		return err
	}
	t, err := reach(ctx, types.NamespacedName{Namespace: g.Namespace, Name: before.Pod})
	if err != nil {
		return err
	}
	defer t.end()
	ctx, cancel := context.WithTimeout(ctx, patience(g))
	defer cancel()
	w := observe(ctx, g.Name, t.address)
	after, err := w.ask(ctx, before.Pod, to)
	if err != nil {
		return t.failure.or(err)
	}
	fmt.Fprintf(out, "%s leads %s in term %d, after %s%s\n", after.Coordinator, g.Name, after.Term, before.Pod, w.gap(ctx, after))
	if text := comesBack(g, before, &after); text != "" {
		fmt.Fprintln(out, text)
	}
	return nil
}

// patience is for the application to stop, which may take the group's drain
// time, and for all that isn't its own.
func patience(g *v1.ElectionGroup) time.Duration {
	drain := 5 * time.Second
	if millis := g.Spec.Timing.DrainMillis; millis != nil {
		drain = time.Duration(*millis) * time.Millisecond
	}
	return drain + 15*time.Second
}

func checkSuccessor(g *v1.ElectionGroup, to string) error {
	if to == "" {
		return nil
	}
	if to == g.Status.Coordinator.Pod {
		return command.UsageErrorf("--to: %s leads already; name another pod, or leave it out", to)
	}
	var able []string
	for _, p := range g.Status.Processes {
		if p.Priority > 0 && p.Pod != g.Status.Coordinator.Pod {
			able = append(able, p.Pod)
		}
	}
	switch {
	case slices.Contains(able, to):
		return nil
	case len(able) == 0:
		return command.UsageErrorf("--to: %s has no other member with a priority above 0", g.Name)
	}
	const most = 10
	more := ""
	if len(able) > most {
		able, more = able[:most], ", ..."
	}
	return command.UsageErrorf("--to must name a member of %s with a priority above 0, such as %s%s: not %q", g.Name, strings.Join(able, ", "), more, to)
}

// witness sees the hand-over with the eyes of the agent that hands over.
type witness struct {
	group, address string
	states         chan seen
}

// seen is a state, and when it arrived.
type seen struct {
	client.State
	at time.Time
}

// observe watches from before the hand-over until its context ends.
func observe(ctx context.Context, group, address string) *witness {
	w := &witness{group: group, address: address, states: make(chan seen, 64)}
	begun := make(chan struct{})
	go func() {
		first := true
		for state, err := range client.Watch(ctx, group, client.At(address)) {
			if err == nil {
				select {
				case w.states <- seen{state, time.Now()}:
				case <-ctx.Done():
				}
			}
			if first { // There is something to compare with, or won't be.
				close(begun)
				first = false
			}
		}
		close(w.states)
		if first {
			close(begun)
		}
	}()
	select {
	case <-begun:
	case <-ctx.Done():
	}
	return w
}

// ask has the agent in a pod hand over.
func (w *witness) ask(ctx context.Context, pod, to string) (client.State, error) {
	var after client.State
	body, err := json.Marshal(map[string]string{"to": to})
	if err != nil {
		return after, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.address+"/v1/groups/"+w.group+"/step-down", bytes.NewReader(body))
	if err != nil {
		return after, err
	}
	// A tunnel is never behind a proxy, whatever the environment says.
	asking := http.Client{Transport: &http.Transport{DialContext: new(net.Dialer).DialContext, DisableKeepAlives: true}}
	response, err := asking.Do(request)
	if err != nil {
		return after, fmt.Errorf("the agent in pod %s doesn't answer: %w", pod, errors.Unwrap(err)) // without the URL
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return after, fmt.Errorf("the agent in pod %s broke off: %w", pod, err)
	}
	if response.StatusCode != http.StatusOK {
		return after, fmt.Errorf("the agent in pod %s refused: %w", pod, complaint(answer, response.Status))
	}
	if err := json.Unmarshal(answer, &after); err != nil {
		return after, fmt.Errorf("the agent in pod %s answered %.100q: %w", pod, answer, err)
	}
	return after, nil
}

// complaint is what an agent says in a line of JSON, or else the status.
func complaint(answer []byte, status string) error {
	var refusal struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(answer, &refusal) != nil || refusal.Error == "" {
		return errors.New(status)
	}
	return errors.New(refusal.Error)
}

// gapPatience is how long the successor's first state may be on its way behind
// the answer that it leads.
const gapPatience = 2 * time.Second

// gap says for how long nobody led, as the old coordinator's agent told it.
func (w *witness) gap(ctx context.Context, after client.State) string {
	ctx, cancel := context.WithTimeout(ctx, gapPatience)
	defer cancel()
	var vacant time.Time
	for began := false; ; {
		select {
		case s, ok := <-w.states:
			switch {
			case !ok:
				return ""
			case s.Term >= after.Term && s.Coordinator == after.Coordinator && began:
				if vacant.IsZero() {
					return "; its agent saw no gap"
				}
				return "; nobody led for " + s.at.Sub(vacant).Round(10*time.Microsecond).String() + ", as its agent told it"
			case s.Coordinator == "" && vacant.IsZero():
				vacant = s.at
			}
			began = true
		case <-ctx.Done():
			return ""
		}
	}
}

// comesBack warns of a hand-over that doesn't last.
func comesBack(g *v1.ElectionGroup, before *v1.Coordinator, after *client.State) string {
	if g.Spec.Preemption.Policy == v1.PreemptNever || int64(before.Priority) <= int64(after.Priority) {
		return ""
	}
	seconds := int32(5)
	if s := g.Spec.Preemption.StableSeconds; s != nil {
		seconds = *s
	}
	return fmt.Sprintf("%s has a higher priority (%d): it stays away for %d s, and takes over again when it is well (spec.preemption.policy: %s)",
		before.Pod, before.Priority, seconds, g.Spec.Preemption.Policy)
}
