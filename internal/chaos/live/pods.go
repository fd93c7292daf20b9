package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos/nodefault"
)

const (
	// helperContainer is the only container of a helper.
	helperContainer = "node-fault"
	// isolationTime is how long a node is isolated. The request to undo it couldn't reach the node.
	isolationTime = 30 * time.Second
	// noResponse is the time without a response after which a node is isolated.
	noResponse = 2 * time.Second
	// spare is the time that a helper must still have, in addition to the duration of a fault.
	spare = time.Minute
)

// Pods injects faults by a privileged pod on each node concerned, which is called helper. A helper undoes its fault when the
// connection to it ends, so that nothing remains of a run that was killed. See package nodefault.
type Pods struct {
	Client client.Client
	// Attach connects the standard input and output of a helper until one of them or ctx ends.
	Attach Attach
	// Namespace is that of the helpers.
	Namespace string
	// Image is the image of the helpers, conclave-chaos. If it is empty, it is that of the release of the agent on the node.
	Image string
	// Limit is the time after which a fault ends by itself.
	Limit time.Duration

	mu      sync.Mutex
	helpers map[string]*helper // by node
	// lacks has the reasons why actions aren't possible on the nodes that have helpers.
	lacks map[string]string
	// refused is why the API server refuses helpers, once that is known.
	refused *string
	// isolatedUntil is when the last isolation ends.
	isolatedUntil time.Time
}

// lifetime is how long a helper runs at most.
func (p *Pods) lifetime() time.Duration { return 2*p.Limit + 10*time.Minute }

// helperPod returns the helper for the node of a member.
func (p *Pods) helperPod(member *corev1.Pod) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, GenerateName: "conclave-chaos-",
		Labels: map[string]string{
			"app.kubernetes.io/name": "conclave-chaos", "app.kubernetes.io/managed-by": "kubectl-conclave",
			v1.LabelAgent: v1.AgentDisabled, // The namespace may have opted in.
		},
	}}
	pod.Spec = corev1.PodSpec{
		NodeName: member.Spec.NodeName, HostPID: true, HostNetwork: true, RestartPolicy: corev1.RestartPolicyNever,
		Tolerations:           []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		ActiveDeadlineSeconds: new(int64(p.lifetime().Seconds())), AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		Containers: []corev1.Container{{
			Name: helperContainer, Image: p.image(member), ImagePullPolicy: corev1.PullIfNotPresent,
			Stdin: true, StdinOnce: true, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			SecurityContext: &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0)), RunAsNonRoot: new(false)},
		}},
	}
	if member.Namespace == p.Namespace { // Secrets of other namespaces can't be used.
		pod.Spec.ImagePullSecrets = member.Spec.ImagePullSecrets
	}
	return pod
}

func (p *Pods) image(member *corev1.Pod) string {
	if p.Image != "" {
		return p.Image
	}
	for _, c := range slices.Concat(member.Spec.InitContainers, member.Spec.Containers) {
		if c.Name == v1.AgentContainer {
			return chaosImage(c.Image)
		}
	}
	return ""
}

// chaosImage returns the image of the same release as that of an agent: example.org/conclave/chaos:v1 for
// example.org/conclave/agent:v1. It returns "" if that doesn't follow from the name.
func chaosImage(agent string) string {
	name, tag := agent, ""
	if i := strings.LastIndexByte(agent, ':'); i > strings.LastIndexByte(agent, '/') {
		name, tag = agent[:i], agent[i:]
	}
	prefix, ok := strings.CutSuffix(name, "agent")
	if !ok {
		return ""
	}
	return prefix + "chaos" + tag
}

// permissions are those that helpers need.
func (p *Pods) permissions() []permission {
	return []permission{
		{"create", "", "pods", "", p.Namespace},
		{"get", "", "pods", "", p.Namespace},
		{"delete", "", "pods", "", p.Namespace},
		{"create", "", "pods", "attach", p.Namespace},
	}
}

// notPossible returns why an action isn't possible on this cluster or for this user, or "". After Start, that includes what the
// nodes lack.
func (p *Pods) notPossible(ctx context.Context, action string) (string, error) {
	if action == outage {
		return onlyHack, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == nil {
		reason, err := denied(ctx, p.Client, p.permissions())
		if err == nil && reason == "" {
			reason, err = p.tryCreate(ctx)
		}
		if err != nil {
			return "", err
		}
		p.refused = &reason
	}
	if *p.refused != "" {
		return *p.refused, nil
	}
	return p.lacks[action], nil
}

// tryCreate returns why the API server would refuse a helper, or "".
func (p *Pods) tryCreate(ctx context.Context) (string, error) {
	member := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "any", Containers: []corev1.Container{{Name: v1.AgentContainer, Image: "any/agent:1"}}}}
	err := p.Client.Create(ctx, p.helperPod(member), client.DryRunAll)
	switch {
	case err == nil:
		return "", nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "violates PodSecurity"):
		return fmt.Sprintf("namespace %s refuses privileged pods (Pod Security): choose one that permits them with --machines-namespace", p.Namespace), nil
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err):
		return fmt.Sprintf("the API server refuses a privileged pod in namespace %s: %s", p.Namespace, err), nil
	}
	return "", err
}

// Start starts helpers on the nodes of all members, and finds out what these nodes lack.
func (p *Pods) Start(ctx context.Context, subject Subject) error {
	members, err := candidates(ctx, p.Client, subject)
	if err != nil {
		return err
	}
	nodes := map[string]*corev1.Pod{}
	for _, pod := range members {
		if pod.Spec.NodeName != "" {
			nodes[pod.Spec.NodeName] = pod
		}
	}
	var starting sync.WaitGroup
	failures := make(chan error, len(nodes))
	for _, pod := range nodes {
		starting.Go(func() { failures <- p.prepare(ctx, pod) })
	}
	starting.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return err // One line is enough.
		}
	}
	return nil
}

// prepare starts a helper on the node of a member, unless one runs there that has enough time.
func (p *Pods) prepare(ctx context.Context, member *corev1.Pod) error {
	node := member.Spec.NodeName
	p.mu.Lock()
	old := p.helpers[node]
	p.mu.Unlock()
	if old != nil {
		if old.until.After(time.Now().Add(p.Limit+spare)) && old.check(ctx, member) == nil {
			return nil
		}
		if err := p.stop(ctx, old); err != nil {
			return err
		}
	}
	if p.image(member) == "" {
		return fmt.Errorf("node %s: the name of the image of the fault injector doesn't follow from that of an agent in pod %s: set --machines-image",
			node, member.Name)
	}
	h := &helper{until: time.Now().Add(p.lifetime())}
	err := h.start(ctx, p.Client, p.Attach, p.helperPod(member))
	if err == nil {
		err = h.check(ctx, member)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.pod != nil { // It must be deleted, also if it didn't start.
		if p.helpers == nil {
			p.helpers = map[string]*helper{}
		}
		p.helpers[node] = h
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	if p.lacks == nil {
		p.lacks = map[string]string{}
	}
	for _, action := range actions {
		reason, known := h.actions[action]
		if !known {
			reason = fmt.Sprintf("image %s doesn't know it: choose a later one with --machines-image", h.pod.Spec.Containers[0].Image)
		}
		if reason != "" {
			p.lacks[action] = fmt.Sprintf("node %s: %s", node, reason)
		}
	}
	return nil
}

// disconnectControlPlane isn't possible: notPossible says so.
func (*Pods) disconnectControlPlane(context.Context, bool) error { return errors.New(onlyHack) }

// Stop deletes all helpers. Thereby they undo their faults.
func (p *Pods) Stop(ctx context.Context) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.helpers {
		err = errors.Join(err, p.stop(ctx, h))
	}
	p.helpers = nil
	return err
}

func (p *Pods) stop(ctx context.Context, h *helper) error {
	h.disconnect()
	return client.IgnoreNotFound(p.Client.Delete(ctx, h.pod))
}

func (p *Pods) helper(node string) (*helper, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.helpers[node]; h != nil {
		return h, nil
	}
	return nil, fmt.Errorf("no pod for faults runs on node %s", node)
}

func (p *Pods) inject(ctx context.Context, node string, fault *nodefault.Request) error {
	h, err := p.helper(node)
	if err != nil {
		return err
	}
	request := *fault
	request.Limit = p.Limit
	if fault.Action == nodefault.Isolate {
		request.Limit = isolationTime
		p.isolatedUntil = time.Now().Add(isolationTime)
		return h.try(ctx, &request, noResponse)
	}
	_, err = h.ask(ctx, &request)
	return err
}

func (p *Pods) undo(ctx context.Context, node string, fault *nodefault.Request) error {
	if fault.Action == nodefault.Isolate {
		wait(ctx, time.Until(p.isolatedUntil))
		return ctx.Err()
	}
	h, err := p.helper(node)
	if err != nil {
		return err
	}
	_, err = h.ask(ctx, &nodefault.Request{Action: nodefault.Undo})
	if _, responded := errors.AsType[*responseError](err); err == nil || responded {
		return err
	}
	// The helper undoes the fault when the connection has ended.
	h.disconnect()
	for {
		pod := &corev1.Pod{}
		err := p.Client.Get(ctx, types.NamespacedName{Namespace: h.pod.Namespace, Name: h.pod.Name}, pod)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && isFinished(pod):
			if fault.Action == nodefault.Stop && wasKilled(pod) {
				return &responseError{fmt.Sprintf("pod %s was killed: stopped processes remain stopped until their pod is deleted", client.ObjectKeyFromObject(pod))}
			}
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("pod %s doesn't respond: its fault ends by itself within %s", client.ObjectKeyFromObject(h.pod), p.Limit)
		}
		wait(ctx, pollInterval)
	}
}

// wasKilled reports whether a helper has ended otherwise than by itself, so that it didn't undo its fault.
func wasKilled(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated != nil && s.State.Terminated.ExitCode != 0
	})
}
