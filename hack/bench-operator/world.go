package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/inject"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// world is the groups, their pods, and who stands in for their agents.
//
// Its groups have no Service: the API server takes no endpoints on loopback. That
// part of an election is measured on the cluster.
type world struct {
	client client.WithWatch
	groups []*ledger
}

// ledger is one group.
type ledger struct {
	key    types.NamespacedName
	agents []*fakeagent.Agent
	pods   []string
	// led is who was last decreed to lead.
	led int
}

const (
	// hands is how many requests are under way while the world is made.
	hands        = 32
	perNamespace = 50
	nodes        = 50
	// perNet is how many agents have the same third byte in their addresses.
	perNet     = 250
	maxMembers = 200 * perNet
)

// address is that of the n-th agent: each has one of its own.
func address(n int) string { return fmt.Sprintf("127.77.%d.%d", n/perNet, n%perNet+1) }

func namespaceOf(group int) string { return fmt.Sprintf("bench-%d", group/perNamespace) }

func (m *measurer) newWorld(ctx context.Context, c client.WithWatch, w *fakeagent.CertificateFactory) (*world, error) {
	made := &world{client: c, groups: make([]*ledger, m.options.groups)}
	for n := 0; n < m.options.groups; n += perNamespace {
		if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(n)}}); err != nil {
			return made, err
		}
	}
	for n := range nodes {
		if err := c.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(n)}}); err != nil {
			return made, err
		}
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(hands)
	for n := range made.groups {
		g := &ledger{key: types.NamespacedName{Namespace: namespaceOf(n), Name: fmt.Sprintf("ledger-%d", n)}}
		g.agents, g.pods = make([]*fakeagent.Agent, m.options.members), make([]string, m.options.members)
		made.groups[n] = g
		for i := range g.pods {
			g.pods[i] = fmt.Sprintf("%s-%d", g.key.Name, i)
		}
		for i := range g.pods {
			work.Go(func() (err error) {
				g.agents[i], err = made.enter(ctx, g, i, n*m.options.members+i, w)
				return err
			})
		}
	}
	for n := range m.options.bystanders {
		work.Go(func() error {
			return made.createPod(ctx, podOf(namespaceOf(n%m.options.groups), fmt.Sprintf("bystander-%d", n), n, ""), "10.0.0.1")
		})
	}
	return made, work.Wait()
}

func nodeOf(n int) string { return fmt.Sprintf("node-%d", n%nodes) }

// enter makes a pod and its understudy.
func (w *world) enter(ctx context.Context, g *ledger, member, n int, wardrobe *fakeagent.CertificateFactory) (*fakeagent.Agent, error) {
	ip := address(n)
	agent, err := fakeagent.New(fakeagent.Identity{
		Namespace: g.key.Namespace, Pod: g.pods[member], Groups: []string{g.key.Name},
		Address: fmt.Sprintf("%s:%d", ip, control.OperatorPort),
	}, wardrobe)
	if err != nil {
		return nil, err
	}
	if err := agent.Run(ctx); err != nil {
		return nil, err
	}
	pod, err := injected(podOf(g.key.Namespace, g.pods[member], n, g.key.Name), string(wardrobe.Authorities))
	if err != nil {
		return agent, err
	}
	return agent, w.createPod(ctx, pod, ip)
}

// podOf is a pod as a StatefulSet would have made it.
func podOf(namespace, name string, n int, group string) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{
				"app.kubernetes.io/name": "ledger", "app.kubernetes.io/instance": name, "controller-revision-hash": "ledger-7d9c6b5f4",
				"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": fmt.Sprint(n),
			},
			Annotations: map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
		},
		Spec: corev1.PodSpec{
			NodeName: nodeOf(n), ServiceAccountName: "default",
			Containers: []corev1.Container{{
				Name: "application", Image: "registry.example.com/bank/ledger:1.27.3",
				Env: []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "DATABASE", Value: "postgres://ledger.bank.svc:5432/ledger"}},
			}},
		},
	}
	if group != "" {
		pod.Labels[v1.LabelAgent] = v1.AgentEnabled
		pod.Annotations[v1.AnnotationGroups] = group
	}
	return pod
}

// injected is the pod with an agent's container, as the webhook would have put it there.
func injected(pod *corev1.Pod, authorities string) (*corev1.Pod, error) {
	before, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	operations, err := inject.Patch(before, inject.Settings{
		AgentImage: "conclave/agent:bench", IdentityURL: "https://conclave-identity." + system + ".svc", CABundle: authorities,
	})
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, err
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, err
	}
	with := &corev1.Pod{}
	return with, json.Unmarshal(after, with)
}

// createPod creates a pod that runs.
func (w *world) createPod(ctx context.Context, pod *corev1.Pod, ip string) error {
	if err := w.client.Create(ctx, pod); err != nil {
		return err
	}
	now := metav1.Now()
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	statuses := func(containers []corev1.Container) (all []corev1.ContainerStatus) {
		for _, c := range containers {
			all = append(all, corev1.ContainerStatus{
				Name: c.Name, State: running, Ready: true, Started: new(true), Image: c.Image,
				ImageID: c.Image + "@sha256:" + fmt.Sprintf("%064x", 1), ContainerID: "containerd://" + fmt.Sprintf("%064x", 1),
			})
		}
		return all
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, StartTime: &now, QOSClass: pod.Status.QOSClass,
		InitContainerStatuses: statuses(pod.Spec.InitContainers), ContainerStatuses: statuses(pod.Spec.Containers),
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	return w.client.Status().Update(ctx, pod)
}

// declare makes the groups.
func (w *world) declare(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(hands)
	for _, g := range w.groups {
		work.Go(func() error {
			group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: g.key.Name}}
			for i, pod := range g.pods {
				group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: pod, Priority: int32(10 * (i + 1))}) //nolint:gosec // 50,000 at most
			}
			return w.client.Create(ctx, group)
		})
	}
	return work.Wait()
}

// electFirst has each group elect its highest member as soon as all its agents
// have been told that they are in it.
func (w *world) electFirst(ctx context.Context) error {
	var work errgroup.Group
	for _, g := range w.groups {
		work.Go(func() error {
			for _, agent := range g.agents {
				if err := agent.AwaitGroup(ctx, g.key.Name); err != nil {
					return err
				}
			}
			g.led = len(g.pods) - 1
			return g.elect(g.pods[g.led], termAt(time.Now()))
		})
	}
	return work.Wait()
}

func termAt(now time.Time) uint64 { return uint64(control.TermAt(now)) }

// elect has all agents of a group say that one leads.
func (g *ledger) elect(coordinator string, term uint64) error {
	return g.obey(fakeagent.Leadership{Coordinator: coordinator, Term: term, ElectedAt: time.Now()})
}

// miss has all agents of a group say that nobody leads.
func (g *ledger) miss(term uint64) error {
	return g.obey(fakeagent.Leadership{Term: term, Electing: true})
}

func (g *ledger) obey(d fakeagent.Leadership) error {
	for _, agent := range g.agents {
		if err := agent.SetLeadership(g.key.Name, d); err != nil {
			return fmt.Errorf("group %s: %w", g.key, err)
		}
	}
	return nil
}

// heard is how many agents have a stream.
func (w *world) heard() (heard int) {
	for _, g := range w.groups {
		for _, agent := range g.agents {
			heard += min(agent.Streams(), 1)
		}
	}
	return heard
}

func (w *world) size() int { return len(w.groups) * len(w.groups[0].agents) }

// traffic is how many bytes went over the streams, both ways.
func (w *world) traffic() (bytes int64) {
	for _, g := range w.groups {
		for _, agent := range g.agents {
			received, sent := agent.Traffic()
			bytes += received + sent
		}
	}
	return bytes
}

func (w *world) close() error {
	var all []error
	for _, g := range w.groups {
		if g == nil {
			continue
		}
		for _, agent := range g.agents {
			if agent != nil {
				all = append(all, agent.Stop())
			}
		}
	}
	return errors.Join(all...)
}

// authorityOf reads the authority that the manager keeps.
func authorityOf(secret *corev1.Secret) (*fakeagent.CertificateFactory, error) {
	root := identity.Pair{Cert: secret.Data["ca.crt"], Key: secret.Data["ca.key"]}
	authority, err := identity.ParseCA(root)
	if err != nil {
		return nil, fmt.Errorf("read the authority in %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return &fakeagent.CertificateFactory{Authority: authority, Authorities: root.Cert}, nil
}
