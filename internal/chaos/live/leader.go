package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/chaos"
)

// staleTime is how long a leader remains frozen while another one leads. It is longer than queryTimeout, so that a
// process that still believes to lead when it continues has a query to answer that was sent after the other one was
// elected.
const staleTime = 3 * time.Second

// Leader is the leader of some pods that aren't members of a group, as the subject of a run.
type Leader struct {
	// Text is the source that says who leads, as the user wrote it.
	Text string
	// Namespace is that of the pods, and Selector selects them. Members is how many there are before the first fault.
	Namespace string
	Selector  labels.Selector
	Members   int

	source source
}

// source says who leads.
type source interface {
	permissions(namespace string) []permission
	// observe observes objects, and observePod asks a pod.
	observe(ctx context.Context, o *Observer)
	observePod(ctx context.Context, o *Observer, agent chaos.Agent)
	// asks: observePod asks each pod.
	asks() bool
	// current returns which of these pods leads, and the key of the label that says so, if one does.
	current(ctx context.Context, c client.Client, pods []corev1.Pod) (leader *corev1.Pod, key string, err error)
	// vacant says why no pod leads, or "". It is called with the lock of the observer.
	vacant() string
	// evidence says what the source proves about two leaders, and seesTwo reports whether it can show them.
	evidence() string
	seesTwo() bool
}

// ParseLeader parses lease/NAME, label:KEY=VALUE, http://PORT/PATH or exec:COMMAND. The namespace is that of the pods.
func ParseLeader(text, namespace string, forward Forward, exec Exec) (*Leader, error) {
	l := &Leader{Text: text, Namespace: namespace}
	scheme, rest, _ := strings.Cut(text, ":")
	lease, isLease := strings.CutPrefix(text, "lease/")
	switch {
	case isLease:
		of, name, found := strings.Cut(lease, "/")
		if !found {
			of, name = namespace, lease
		}
		if of != "" && name != "" && !strings.Contains(name, "/") {
			l.source = &leaseSource{name: types.NamespacedName{Namespace: of, Name: name}}
			return l, nil
		}
	case scheme == "label":
		key, value, found := strings.Cut(rest, "=")
		if _, err := labels.ValidatedSelectorFromSet(labels.Set{key: value}); found && key != "" && err == nil {
			l.source = &labelSource{key: key, value: value, leader: l, changed: make(chan struct{}, 1)}
			return l, nil
		}
	case scheme == "http":
		number, path, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
		if port, err := strconv.ParseUint(number, 10, 16); err == nil && port > 0 {
			l.source = &httpSource{port: int(port), path: "/" + path, forward: forward}
			return l, nil
		}
	case scheme == "exec" && strings.TrimSpace(rest) != "":
		l.source = &execSource{command: rest, exec: exec, leader: l}
		return l, nil
	}
	return nil, fmt.Errorf(
		"must be lease/NAME, lease/NAMESPACE/NAME, label:KEY=VALUE, http://PORT/PATH or exec:COMMAND, got %q", text)
}

// SeesTwo reports whether the source can show two leaders.
func (l *Leader) SeesTwo() bool { return l.source.seesTwo() }

// Choose chooses the candidates by a selector. If it is empty, they are the pods with all labels of the one that leads.
func (l *Leader) Choose(ctx context.Context, c client.Client, selector string) (err error) {
	if l.Selector, err = labels.Parse(selector); err != nil {
		return fmt.Errorf("--selector must be such as app=web, got %q", selector)
	}
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(l.Namespace),
		client.MatchingLabelsSelector{Selector: l.Selector}); err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return isFinished(&pod) })
	leader, key, err := l.source.current(ctx, c, list.Items)
	switch {
	case err != nil:
		return err
	case selector == "" && l.source.asks():
		return fmt.Errorf("--leader %s needs --selector: the labels of the pods that may lead", l.Text)
	case selector == "" && leader == nil:
		return fmt.Errorf("no pod in namespace %s leads%s: select the candidates with --selector",
			l.Namespace, l.source.vacant())
	case selector == "":
		if l.Selector = likeLeader(leader, key); l.Selector.Empty() {
			return fmt.Errorf("pod %s, which leads, has no other labels: select the candidates with --selector", leader.Name)
		}
	}
	for _, pod := range list.Items {
		if l.Selector.Matches(labels.Set(pod.Labels)) {
			l.Members++
		}
	}
	if l.Members < 2 {
		pods := fmt.Sprintf("%d pods in namespace %s have", l.Members, l.Namespace)
		if l.Members == 1 {
			pods = fmt.Sprintf("1 pod in namespace %s has", l.Namespace)
		}
		return fmt.Errorf("%s the labels %s, and 2 are needed to fail over: add replicas, or choose others with --selector",
			pods, l.Selector)
	}
	return nil
}

// likeLeader selects the pods with the labels of one, without those that aren't the same for all pods of its owner.
func likeLeader(pod *corev1.Pod, key string) labels.Selector {
	set := maps.Clone(pod.Labels)
	for _, own := range []string{
		key, "pod-template-hash", "controller-revision-hash", "pod-template-generation", "statefulset.kubernetes.io/pod-name",
		"apps.kubernetes.io/pod-index",
	} {
		delete(set, own)
	}
	return labels.SelectorFromSet(set)
}

func (l *Leader) String() string    { return l.Text }
func (l *Leader) namespace() string { return l.Namespace }
func (*Leader) hasSides() bool      { return false }

func (l *Leader) linger() time.Duration {
	if l.source.asks() {
		return staleTime
	}
	return 0
}

func (l *Leader) selected() []client.ListOption {
	return []client.ListOption{client.MatchingLabelsSelector{Selector: l.Selector}}
}

func (*Leader) isCandidate(*corev1.Pod) bool { return true }

func (l *Leader) isObservable(pod *corev1.Pod) bool {
	return l.source.asks() && slices.ContainsFunc(pod.Status.ContainerStatuses,
		func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}

func (l *Leader) permissions() []permission { return l.source.permissions(l.Namespace) }

func (l *Leader) describe(r *chaos.Result) {
	r.Leader, r.Candidates, r.Evidence = l.Text, l.Selector.String(), l.source.evidence()
}

func (l *Leader) observe(ctx context.Context, o *Observer) { l.source.observe(ctx, o) }

func (l *Leader) observePod(ctx context.Context, o *Observer, agent chaos.Agent) {
	l.source.observePod(ctx, o, agent)
}

func (l *Leader) complete(o *Observer, s *chaos.State) {
	s.ByClaims, s.Members, s.Vacant = true, l.Members, l.source.vacant()
	for i := range s.Pods {
		p := &s.Pods[i]
		known := o.pods[types.UID(p.UID)]
		switch {
		case known.said != nil && !known.said.Sent.Before(o.record.Since):
			p.Said = known.said
		case l.source.asks() && known.silence != nil:
			p.Silence = known.silence.Error()
		case l.source.asks():
			p.Silence = "it wasn't asked yet"
		}
		if p.Ready && !p.Terminating {
			s.Rows = append(s.Rows, chaos.Row{Pod: p.Pod, Priority: 1, Up: true, Eligible: true})
		}
		if p.Said != nil && p.Said.Leading && !p.Terminating && s.Coordinator == "" {
			s.Coordinator = p.Pod
		}
	}
}

func (l *Leader) begin(before, after *chaos.Record, _ *chaos.State) {
	after.Claims, after.ByClaims, after.ByObjects, after.Since = before.NextClaims(), true, !l.source.asks(), before.Since
}

// claim records a claim. The caller has locked the observer.
func (o *Observer) claim(c chaos.Claim) {
	o.record.Claims = append(o.record.Claims, c)
	if p := o.pods[types.UID(c.From.UID)]; p != nil {
		p.said, p.silence = &c, nil
	}
}

// silent records why a pod doesn't answer.
func (o *Observer) silent(agent chaos.Agent, err error) {
	o.mu.Lock()
	defer o.unlock()
	if p := o.pods[types.UID(agent.UID)]; p != nil {
		p.silence = err
	}
}

// names reports whether an answer names a pod that leads, and whether that is this one. The observer is locked.
func (o *Observer) names(answer, self string) (named, own bool) {
	answer = strings.TrimSpace(answer)
	for _, p := range o.pods {
		named = named || p.Name == answer
	}
	return named, answer == self
}
