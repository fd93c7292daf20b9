package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/cli/upgrade"
	"github.com/conclave-dev/conclave/internal/operator/membership"
)

// upgradePoll is the interval in which an upgrade reads pods and groups while it waits.
const upgradePoll = time.Second

// installedAgent returns the image of the agent that the operator of a namespace injects.
func installedAgent(ctx context.Context, c client.Client, namespace string) (string, error) {
	found, err := findOperator(ctx, c, namespace)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot find the image of the agent (%w): set --agent-image", err)
	case found.agentImage == "":
		return "", fmt.Errorf("cannot find the image of the agent (the operator in namespace %s has no AGENT_IMAGE): set --agent-image", found.namespace)
	case found.updating:
		return "", fmt.Errorf("the operator is being updated, and new pods might get its former agent: run this first: kubectl rollout status deployment -l app.kubernetes.io/name=conclave -n %s", found.namespace)
	}
	return found.agentImage, nil
}

// upgrader upgrades the pods of a namespace.
type upgrader struct {
	client           client.Client
	out              io.Writer
	namespace, group string
	// image is that of the agent which new pods of the namespace get.
	image   string
	options *upgradeOptions
	forward portForwarder
	// known are the outdated pods of the first look: others were created since.
	known    map[types.UID]bool
	replaced int
	// unowned are pods that no controller would create again.
	unowned []string
}

func (u *upgrader) run(ctx context.Context) error {
	state, err := u.gather(ctx)
	if err != nil {
		return err
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
	fmt.Fprintf(u.out, u.namespace+"/"+format+"\n", args...)
}

func describeStep(s *upgrade.Step) string {
	return fmt.Sprintf("%s (%s)", s.Pod.Name, membership.AgentImage(s.Pod))
}

// afterHandOver says what happens before a pod is replaced.
func afterHandOver(s *upgrade.Step) string {
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
func (u *upgrader) next(ctx context.Context) (step *upgrade.Step, err error) {
	err = u.wait(ctx, func(state *upgrade.State) (string, error) {
		steps := state.Plan()
		if len(steps) == 0 {
			step = nil
			return "", nil
		}
		if at := slices.IndexFunc(steps, func(s upgrade.Step) bool { return !u.known[s.Pod.UID] }); at >= 0 {
			return "", fmt.Errorf("pod %s/%s was created again with the agent %s, not %s: its pod template has the agent (run kubectl conclave inject again), "+
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
func (u *upgrader) replace(ctx context.Context, step *upgrade.Step) error {
	// Without this, the coordinator would step down although its eviction is refused.
	if err := u.evict(ctx, step.Pod, metav1.DryRunAll); err != nil {
		return err
	}
	for _, g := range step.HandOvers {
		if err := u.handOver(ctx, step.Pod.Name, g.Name); err != nil {
			return fmt.Errorf("cannot replace pod %s/%s: %w", u.namespace, step.Pod.Name, err)
		}
	}
	if err := u.evict(ctx, step.Pod); err != nil {
		return err
	}
	evicted := time.Now()
	err := u.wait(ctx, func(state *upgrade.State) (string, error) {
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

// handOver makes a pod hand over a group, unless it no longer leads it. A member that was
// replaced a moment ago is up before it is ready to take over, so a refusal isn't the end.
func (u *upgrader) handOver(ctx context.Context, pod, group string) error {
	return u.wait(ctx, func(state *upgrade.State) (string, error) {
		at := slices.IndexFunc(state.Groups, func(g v1.ElectionGroup) bool { return g.Name == group })
		if at < 0 || state.Groups[at].Status.Coordinator == nil || state.Groups[at].Status.Coordinator.Pod != pod {
			return "", nil
		}
		var text strings.Builder
		err := stepDown(ctx, &text, &state.Groups[at], "", u.forward)
		if refused, ok := errors.AsType[*conflictError](err); ok {
			return refused.Error(), nil
		}
		if err == nil {
			first, _, _ := strings.Cut(text.String(), "\n")
			u.printf("%s handed over %s: %s", pod, group, first)
		}
		return "", err
	})
}

// evict evicts a pod. It waits until the disruption budgets permit that.
func (u *upgrader) evict(ctx context.Context, p *corev1.Pod, dryRun ...string) error {
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID)), DryRun: dryRun}}
	return u.poll(ctx, func() (string, error) {
		err := u.client.SubResource("eviction").Create(ctx, p.DeepCopy(), eviction)
		switch {
		case apierrors.IsTooManyRequests(err):
			return fmt.Sprintf("the eviction of pod %s/%s is refused: %s", u.namespace, p.Name, command.SingleLine(err)), nil
		case client.IgnoreNotFound(err) != nil:
			return "", fmt.Errorf("cannot evict pod %s/%s: %w", u.namespace, p.Name, requestError(err))
		}
		return "", nil
	})
}

// wait reads the state until there is no obstacle.
func (u *upgrader) wait(ctx context.Context, check func(*upgrade.State) (obstacle string, err error)) error {
	return u.poll(ctx, func() (string, error) {
		state, err := u.gather(ctx)
		if err != nil {
			return "", err
		}
		return check(state)
	})
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
			return fmt.Errorf("%w; to continue, run the command again", errInterrupted)
		case <-time.After(upgradePoll):
		}
	}
}

func (u *upgrader) gather(ctx context.Context) (*upgrade.State, error) {
	var groups v1.ElectionGroupList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&groups, &pods} {
		if err := u.client.List(ctx, list, client.InNamespace(u.namespace)); err != nil {
			return nil, requestError(err)
		}
	}
	return &upgrade.State{Image: u.image, Group: u.group, Groups: groups.Items, Pods: pods.Items}, nil
}
