package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// fakeGroups are the groups of the scale part, with their pods and fake agents.
//
// The groups have no Service, because the API server rejects endpoints with loopback
// addresses. make chaos measures the update of the Service.
type fakeGroups struct {
	client client.WithWatch
	port   *fakeagent.Port
	groups []*fakeGroup
}

// fakeGroup is one group with its fake agents.
type fakeGroup struct {
	key    types.NamespacedName
	agents []*fakeagent.Agent
	pods   []string
	// coordinator is the index of the last coordinator.
	coordinator int
}

const (
	// concurrency is the number of concurrent requests while the groups are created.
	concurrency        = 32
	groupsPerNamespace = 50
	nodes              = 50
	// agentsPerSubnet is the number of agents whose addresses have the same third byte.
	agentsPerSubnet = 250
	maxMembers      = 200 * agentsPerSubnet
)

// address returns the address of the n-th agent. Each agent has a different one.
func address(n int) string {
	return fmt.Sprintf("127.77.%d.%d", n/agentsPerSubnet, n%agentsPerSubnet+1)
}

func namespaceOf(group int) string { return fmt.Sprintf("bench-%d", group/groupsPerNamespace) }

func (r *runner) newFakeGroups(ctx context.Context, c client.WithWatch,
	certificates *fakeagent.CertificateFactory,
) (*fakeGroups, error) {
	all := &fakeGroups{client: c, groups: make([]*fakeGroup, r.options.groups)}
	var err error
	if all.port, err = fakeagent.ListenPort(ctx, control.OperatorPort); err != nil {
		return all, err
	}
	for n := 0; n < r.options.groups; n += groupsPerNamespace {
		if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(n)}}); err != nil {
			return all, err
		}
	}
	for n := range nodes {
		if err := c.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(n)}}); err != nil {
			return all, err
		}
	}
	for n := range all.groups {
		g := &fakeGroup{key: types.NamespacedName{Namespace: namespaceOf(n), Name: fmt.Sprintf("ledger-%d", n)}}
		g.agents, g.pods = make([]*fakeagent.Agent, r.options.members), make([]string, r.options.members)
		all.groups[n] = g
		for i := range g.pods {
			g.pods[i] = fmt.Sprintf("%s-%d", g.key.Name, i)
		}
	}
	return all,
		parallel(ctx, concurrency, r.options.groups*r.options.members, func(ctx context.Context, n int) (err error) {
			g, i := all.groups[n/r.options.members], n%r.options.members
			g.agents[i], err = all.createMember(ctx, g, i, n, certificates)
			return err
		})
}

// parallel calls a function with 0 to n-1, in a number of goroutines, until one call fails.
func parallel(ctx context.Context, goroutines, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workqueue.ParallelizeUntil(ctx, goroutines, n, func(i int) {
		if err := do(ctx, i); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}

func nodeOf(n int) string { return fmt.Sprintf("node-%d", n%nodes) }

// createMember starts the fake agent of a member and creates its pod.
func (f *fakeGroups) createMember(ctx context.Context, g *fakeGroup, member, n int,
	certificates *fakeagent.CertificateFactory,
) (*fakeagent.Agent, error) {
	ip := address(n)
	agent, err := fakeagent.New(fakeagent.Identity{
		Namespace: g.key.Namespace, Pod: g.pods[member], Groups: []string{g.key.Name},
		Address: fmt.Sprintf("%s:%d", ip, control.OperatorPort), Port: f.port,
	}, certificates)
	if err != nil {
		return nil, err
	}
	if err := agent.Run(ctx); err != nil {
		return nil, err
	}
	pod, err := injected(podOf(g.key.Namespace, g.pods[member], n, g.key.Name), string(certificates.Authorities))
	if err != nil {
		return agent, err
	}
	return agent, f.createPod(ctx, pod, ip)
}

// podOf returns a pod like those of a StatefulSet.
func podOf(namespace, name string, n int, group string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{
				"app.kubernetes.io/name": "ledger", "app.kubernetes.io/instance": name,
				"controller-revision-hash":           "ledger-7d9c6b5f4",
				"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": fmt.Sprint(n),
				v1.LabelAgent: v1.AgentEnabled,
			},
			Annotations: map[string]string{
				"prometheus.io/scrape": "true", "prometheus.io/port": "8080", v1.AnnotationGroups: group,
			},
		},
		Spec: corev1.PodSpec{
			NodeName: nodeOf(n), ServiceAccountName: "default",
			Containers: []corev1.Container{{
				Name: "application", Image: "registry.example.com/bank/ledger:1.27.3",
				Env: []corev1.EnvVar{
					{Name: "LOG_LEVEL", Value: "info"}, {Name: "DATABASE", Value: "postgres://ledger.bank.svc:5432/ledger"},
				},
			}},
		},
	}
}

// injected returns the pod with the agent's container, as the webhook would have patched it.
func injected(pod *corev1.Pod, caBundle string) (*corev1.Pod, error) {
	before, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	operations, err := inject.Patch(before, inject.NamedGroups, nil, inject.Settings{
		AgentImage: "conclave/agent:bench", IdentityURL: "https://conclave-identity." + system + ".svc", CABundle: caBundle,
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
	patched := &corev1.Pod{}
	return patched, json.Unmarshal(after, patched)
}

// createPod creates a pod and sets its status to running.
func (f *fakeGroups) createPod(ctx context.Context, pod *corev1.Pod, ip string) error {
	if err := f.client.Create(ctx, pod); err != nil {
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
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	return f.client.Status().Update(ctx, pod)
}

// createElectionGroups creates the ElectionGroups.
func (f *fakeGroups) createElectionGroups(ctx context.Context) error {
	return parallel(ctx, concurrency, len(f.groups), func(ctx context.Context, n int) error {
		g := f.groups[n]
		group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: g.key.Name}}
		for i, pod := range g.pods {
			member := v1.Member{Pod: pod, Priority: int32(10 * (i + 1))} //nolint:gosec // 50,000 at most
			group.Spec.Members = append(group.Spec.Members, member)
		}
		return f.client.Create(ctx, group)
	})
}

// electFirst makes each group elect its highest member as soon as all its agents have joined the group.
func (f *fakeGroups) electFirst(ctx context.Context) error {
	return parallel(ctx, len(f.groups), len(f.groups), func(ctx context.Context, n int) error {
		g := f.groups[n]
		for _, agent := range g.agents {
			if err := agent.AwaitGroup(ctx, g.key.Name); err != nil {
				return err
			}
		}
		g.coordinator = len(g.pods) - 1
		return g.setCoordinator(g.pods[g.coordinator], 1)
	})
}

// setCoordinator makes all agents of the group report a coordinator.
func (g *fakeGroup) setCoordinator(coordinator string, term uint64) error {
	return g.setLeadership(fakeagent.Leadership{Coordinator: coordinator, Term: term, ElectedAt: time.Now()})
}

// clearCoordinator makes all agents of the group report that no process leads.
func (g *fakeGroup) clearCoordinator(term uint64) error {
	return g.setLeadership(fakeagent.Leadership{Term: term, Electing: true})
}

func (g *fakeGroup) setLeadership(l fakeagent.Leadership) error {
	for _, agent := range g.agents {
		if err := agent.SetLeadership(g.key.Name, l); err != nil {
			return fmt.Errorf("group %s: %w", g.key, err)
		}
	}
	return nil
}

// connected returns the number of agents that have a stream to the manager.
func (f *fakeGroups) connected() (count int) {
	for _, g := range f.groups {
		for _, agent := range g.agents {
			count += min(agent.Streams(), 1)
		}
	}
	return count
}

// size returns the number of agents.
func (f *fakeGroups) size() int { return len(f.groups) * len(f.groups[0].agents) }

func (f *fakeGroups) close() error {
	var all []error
	for _, g := range f.groups {
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

// certificatesFrom returns a factory that issues certificates with the manager's CA.
func certificatesFrom(secret *corev1.Secret) (*fakeagent.CertificateFactory, error) {
	root := identity.Pair{Cert: secret.Data["ca.crt"], Key: secret.Data["ca.key"]}
	ca, err := identity.ParseCA(root)
	if err != nil {
		return nil, fmt.Errorf("cannot read the CA in Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return &fakeagent.CertificateFactory{Authority: ca, Authorities: root.Cert}, nil
}
