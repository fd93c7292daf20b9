package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/plugin/stepdown"
	"github.com/conclave-dev/conclave/internal/plugin/upgrade/plan"
)

// pollInterval is the interval in which an upgrade reads pods and groups while it waits.
const pollInterval = time.Second

// installedAgent returns the image of the agent that the operator injects.
func installedAgent(ctx context.Context, c client.Client) (string, error) {
	found, err := clusteraccess.FindOperator(ctx, c)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot find the image of the agent (%w): set --agent-image", err)
	case found.AgentImage == "":
		return "", fmt.Errorf("cannot find the image of the agent (the operator in namespace %s has no AGENT_IMAGE): set --agent-image", found.Namespace)
	case found.Updating:
		return "", fmt.Errorf("the operator is being updated, and new pods might get its former agent: run this first: kubectl rollout status deployment -l app.kubernetes.io/name=conclave -n %s", found.Namespace)
	case found.Available == 0:
		return "", fmt.Errorf("no replica of the operator in namespace %s is available, and without it no pod with an agent can be created; for the reason, run: kubectl conclave check", found.Namespace)
	}
	return found.AgentImage, nil
}

// upgrader upgrades the pods of a namespace.
type upgrader struct {
	client           client.Client
	out              io.Writer
	namespace, group string
	// image is that of the agent which new pods of the namespace get.
	image   string
	options *options
	forward clusteraccess.PortForwarder
	// known are the outdated pods of the first look: others were created since.
	known    map[types.UID]bool
	replaced int
	// unowned are pods that no controller would create again.
	unowned []string
}

func (u *upgrader) run(ctx context.Context) error {
	state, err := u.gather(ctx)
	if err != nil {
		return clusteraccess.RequestError(err)
	}
	for _, name := range state.Unowned() {
		u.unowned = append(u.unowned, u.namespace+"/"+name)
	}
	steps := state.Plan()
	u.known = map[types.UID]bool{}
	for i := range steps {
		u.known[steps[i].Pod.UID] = true
	}
	if u.options.dryRun {
		for i := range steps {
			u.replaced++
			u.printf("would replace %s%s", describeStep(&steps[i]), afterHandOver(&steps[i]))
		}
		return nil
	}
	for total := len(steps); ; {
		step, err := u.next(ctx)
		if step == nil || err != nil {
			return err
		}
		u.replaced++
		u.printf("replacing %s, %d of %d", describeStep(step), u.replaced, total)
		if err := u.replace(ctx, step); err != nil {
			return err
		}
	}
}

func (u *upgrader) printf(format string, args ...any) {
	fmt.Fprintf(u.out, u.namespace+": "+format+"\n", args...)
}

func describeStep(s *plan.Step) string {
	return fmt.Sprintf("%s (%s)", s.Pod.Name, membership.AgentImage(s.Pod))
}

// afterHandOver says what happens before a pod is replaced.
func afterHandOver(s *plan.Step) string {
	text := ""
	if len(s.HandOvers) > 0 {
		text = ", after it has handed over " + groupNames(s.HandOvers)
	}
	if len(s.Vacates) > 0 {
		text += "; until it is back, there is no coordinator of " + groupNames(s.Vacates)
	}
	return text
}

func groupNames(groups []*v1.ElectionGroup) string {
	var names []string
	for _, g := range groups {
		names = append(names, g.Name)
	}
	return strings.Join(names, ", ")
}

// next waits until a pod may be replaced. It returns nil if none is left.
func (u *upgrader) next(ctx context.Context) (step *plan.Step, err error) {
	err = u.wait(ctx, func(state *plan.State) (string, error) {
		steps := state.Plan()
		if len(steps) == 0 {
			step = nil
			return "", nil
		}
		if at := slices.IndexFunc(steps, func(s plan.Step) bool { return !u.known[s.Pod.UID] }); at >= 0 {
			return "", fmt.Errorf("pod %s/%s was created again with the agent %s, not %s: its pod template has the agent (remove it there, the webhook adds it), "+
				"or another version of the operator injects it", u.namespace, steps[at].Pod.Name, membership.AgentImage(steps[at].Pod), u.image)
		}
		var obstacle string
		step, obstacle = state.Next(steps)
		return obstacle, nil
	})
	return step, err
}

// replace hands over what a pod leads, evicts the pod, and waits until its groups have
// recovered.
func (u *upgrader) replace(ctx context.Context, step *plan.Step) error {
	// Without this, the coordinator would step down although its eviction is refused.
	gone, err := u.evict(ctx, step.Pod, metav1.DryRunAll)
	if err == nil && !gone {
		if err = u.handOver(ctx, step); err == nil {
			_, err = u.evict(ctx, step.Pod)
		}
	}
	if err != nil {
		return err
	}
	evicted := time.Now()
	err = u.wait(ctx, func(state *plan.State) (string, error) {
		if slices.ContainsFunc(state.Pods, func(p corev1.Pod) bool { return p.UID == step.Pod.UID }) {
			return "the pod is still being deleted", nil
		}
		return state.Unsettled(step), nil
	})
	if err != nil {
		return fmt.Errorf("pod %s/%s was evicted: %w", u.namespace, step.Pod.Name, err)
	}
	u.printf("%s is replaced after %s", step.Pod.Name, time.Since(evicted).Round(time.Second))
	return nil
}

// handOver hands over what a pod leads.
func (u *upgrader) handOver(ctx context.Context, step *plan.Step) error {
	for _, g := range step.HandOvers {
		err := u.wait(ctx, func(state *plan.State) (string, error) { return u.tryHandOver(ctx, state, step.Pod, g.Name) })
		if err != nil {
			return fmt.Errorf("cannot replace pod %s/%s: %w", u.namespace, step.Pod.Name, err)
		}
	}
	return nil
}

// tryHandOver makes a pod hand over a group, if it still leads it. A member that was replaced
// a moment ago is up before it is ready to take over, so a refusal is an obstacle, not an error.
func (u *upgrader) tryHandOver(ctx context.Context, state *plan.State, pod *corev1.Pod, group string) (obstacle string, err error) {
	at := slices.IndexFunc(state.Groups, func(g v1.ElectionGroup) bool { return g.Name == group })
	if at < 0 || !slices.ContainsFunc(state.Pods, func(p corev1.Pod) bool { return p.UID == pod.UID }) {
		return "", nil
	}
	switch c := state.Groups[at].Status.Coordinator; {
	case c == nil:
		return fmt.Sprintf("group %s has no coordinator", group), nil
	case c.Pod != pod.Name:
		u.printf("%s doesn't lead %s any more: %s does", pod.Name, group, c.Pod)
		return "", nil
	}
	var text strings.Builder
	err = stepdown.Do(ctx, &text, u.client, &state.Groups[at], "", u.forward)
	if refused, ok := errors.AsType[*stepdown.ConflictError](err); ok {
		return refused.Error(), nil
	}
	if err == nil {
		first, _, _ := strings.Cut(text.String(), "\n")
		u.printf("%s handed over %s: %s", pod.Name, group, first)
	}
	return "", err
}

// evict evicts a pod. It waits until the disruption budgets permit that. If somebody else has
// deleted the pod, it is gone, and there may be another one of its name.
func (u *upgrader) evict(ctx context.Context, p *corev1.Pod, dryRun ...string) (gone bool, err error) {
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID)), DryRun: dryRun}}
	err = u.poll(ctx, func() (string, error) {
		err := u.client.SubResource("eviction").Create(ctx, p.DeepCopy(), eviction)
		switch {
		case apierrors.IsTooManyRequests(err):
			return fmt.Sprintf("the eviction of pod %s/%s is refused: %s", u.namespace, p.Name, command.SingleLine(err)), nil
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			gone = true
		case isTemporary(err) && ctx.Err() == nil:
			return fmt.Sprintf("cannot evict pod %s/%s: %s", u.namespace, p.Name, clusteraccess.RequestError(err)), nil
		case err != nil:
			return "", fmt.Errorf("cannot evict pod %s/%s: %w", u.namespace, p.Name, clusteraccess.RequestError(err))
		}
		return "", nil
	})
	return gone, err
}

// wait reads the state until there is no obstacle.
func (u *upgrader) wait(ctx context.Context, check func(*plan.State) (obstacle string, err error)) error {
	return u.poll(ctx, func() (string, error) {
		state, err := u.gather(ctx)
		switch {
		case isTemporary(err) && ctx.Err() == nil:
			return clusteraccess.RequestError(err).Error(), nil
		case err != nil:
			return "", clusteraccess.RequestError(err)
		}
		return check(state)
	})
}

// isTemporary reports whether a request may succeed later: for example, the node of an API server
// restarts.
func isTemporary(err error) bool {
	_, unreachable := errors.AsType[*url.Error](err)
	return unreachable || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// poll repeats a check until there is no obstacle, or until the timeout.
func (u *upgrader) poll(ctx context.Context, check func() (obstacle string, err error)) error {
	timeout := time.After(u.options.timeout)
	for {
		obstacle, err := check()
		if err != nil || obstacle == "" {
			return err
		}
		select {
		case <-timeout:
			return fmt.Errorf("gave up after %s: %s; to continue later, run the command again", u.options.timeout, obstacle)
		case <-ctx.Done():
			return fmt.Errorf("%w; to continue, run the command again", command.ErrInterrupted)
		case <-time.After(pollInterval):
		}
	}
}

func (u *upgrader) gather(ctx context.Context) (*plan.State, error) {
	var groups v1.ElectionGroupList
	var pods corev1.PodList
	if err := u.client.List(ctx, &groups, client.InNamespace(u.namespace)); err != nil {
		return nil, err
	}
	// A namespace may have thousands of other pods.
	if err := u.client.List(ctx, &pods, client.InNamespace(u.namespace), client.MatchingLabels{v1.LabelAgent: v1.AgentEnabled}); err != nil {
		return nil, err
	}
	if u.group != "" && !slices.ContainsFunc(groups.Items, func(g v1.ElectionGroup) bool { return g.Name == u.group }) {
		return nil, fmt.Errorf("group %s/%s was deleted meanwhile: its pods aren't replaced any more", u.namespace, u.group)
	}
	return &plan.State{Image: u.image, Group: u.group, Groups: groups.Items, Pods: pods.Items, Now: u.options.cluster.Now()}, nil
}
