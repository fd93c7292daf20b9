package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos/live"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

var apiServer = apiserver.New("../../../config/crd/bases")

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	apiServer.Main(m)
}

const (
	groupName = "ledger"
	members   = 3
)

// world is a group on a real API server. It plays the parts of kubelet, StatefulSet controller, operator and agents: it
// replaces deleted pods, and the live pod with the highest priority leads. A test can give it bugs.
type world struct {
	client.WithWatch

	t         *testing.T
	namespace string
	bugs      bugs

	mu          sync.Mutex
	changed     chan struct{} // closed and replaced when the coordinator changes
	coordinator types.UID
	name        string
	term        uint64
	started     int // the number of pods
	owner       metav1.OwnerReference
	agents      map[types.UID]*httptest.Server
	// frozen is the ID of a container whose pod can't lead.
	frozen string
}

// bugs are the bugs of a world.
type bugs struct {
	// lowest: the pod with the lowest priority leads after the first fault.
	lowest bool
	// noLabels: the labels remain as they were, and unlabeled: they never were set.
	noLabels, unlabeled bool
	// bothLead: every agent answers queries as if it were leading, with the token of its own.
	bothLead bool
	// noElection: after the first coordinator there is no other one.
	noElection bool
	// unowned: nothing owns the pods.
	unowned bool
	// together: ledger-1 is on the node of ledger-2.
	together bool
	// vacant: the status has no coordinator.
	vacant bool
}

// repeat calls step at an interval until end is called, which waits for it. It logs errors.
func repeat(t *testing.T, failed string, interval time.Duration, step func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := step(ctx); err != nil && ctx.Err() == nil {
				t.Logf("%s: %v", failed, err)
			}
			select {
			case <-time.After(interval):
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-ended }
}

func newWorld(t *testing.T, b bugs) *world {
	need.Complete(t)
	config := apiServer.Config(t)
	c := testclient.New(t, config)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bank-"}}
	w := &world{
		WithWatch: c, t: t, bugs: b, changed: make(chan struct{}), term: 100, agents: map[types.UID]*httptest.Server{},
	}
	must.Succeed(w.t, w.Create(t.Context(), namespace))
	w.namespace = namespace.Name
	w.createGroup()
	end := repeat(t, "the world retries", 20*time.Millisecond, w.reconcile)
	t.Cleanup(func() {
		end()
		for _, agent := range w.agents {
			agent.CloseClientConnections()
			agent.Close()
		}
	})
	return w
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}

func (w *world) createGroup() {
	g := &v1.ElectionGroup{ObjectMeta: w.meta(groupName)}
	for i := range int32(members) {
		g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: fmt.Sprint("ledger-", i), Priority: 10 * (i + 1)})
	}
	g.Spec.Service = &v1.CoordinatorService{Name: "ledger-coordinator", Ports: []v1.ServicePort{{Port: 8080}}}
	must.Succeed(w.t, w.Create(w.t.Context(), g))
	slice := &discoveryv1.EndpointSlice{ObjectMeta: w.meta("ledger-coordinator"), AddressType: discoveryv1.AddressTypeIPv4}
	slice.Labels = map[string]string{v1.LabelGroup: groupName}
	must.Succeed(w.t, w.Create(w.t.Context(), slice))
	owner := &appsv1.StatefulSet{ObjectMeta: w.meta(groupName)}
	owner.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "ledger"}}
	owner.Spec.Template = w.pod(0).template()
	must.Succeed(w.t, w.Create(w.t.Context(), owner))
	w.owner = metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: "StatefulSet", Name: owner.Name, UID: owner.UID, Controller: new(true),
	}
}

type podOf struct{ *corev1.Pod }

func (p podOf) template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations},
		Spec:       corev1.PodSpec{Containers: p.Spec.Containers},
	}
}

func (w *world) pod(i int) podOf {
	pod := &corev1.Pod{ObjectMeta: w.meta(fmt.Sprint("ledger-", i))}
	pod.Labels = map[string]string{"app": "ledger", v1.LabelAgent: v1.AgentEnabled}
	pod.Annotations = map[string]string{v1.AnnotationGroups: groupName}
	pod.Spec.Containers = []corev1.Container{
		{Name: "application", Image: "any/thing:1"}, {Name: v1.AgentContainer, Image: "any/agent:1"},
	}
	pod.Spec.NodeName = fmt.Sprint("node-", i)
	if i == 1 && w.bugs.together {
		pod.Spec.NodeName = "node-2"
	}
	return podOf{pod}
}

// reconcile replaces pods, elects, and publishes the result.
func (w *world) reconcile(ctx context.Context) error {
	var live []*corev1.Pod
	for i := range members {
		want := w.pod(i).Pod
		err := w.Get(ctx, client.ObjectKeyFromObject(want), want)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return err
		case err != nil:
			pod := w.pod(i).Pod
			if !w.bugs.unowned {
				pod.OwnerReferences = []metav1.OwnerReference{w.owner}
			}
			if err := w.start(ctx, pod); err != nil {
				return err
			}
		case want.DeletionTimestamp != nil:
			if err := client.IgnoreNotFound(w.Delete(ctx, want, client.GracePeriodSeconds(0))); err != nil {
				return err
			}
		case want.Status.PodIP == "":
			if err := w.makeReady(ctx, want); err != nil {
				return err
			}
		default:
			live = append(live, want)
		}
	}
	if len(live) == 0 || w.neverElected() && len(live) < members {
		return nil
	}
	w.elect(live)
	return w.publish(ctx, live)
}

// start creates a pod that is ready at once.
func (w *world) start(ctx context.Context, pod *corev1.Pod) error {
	if err := w.Create(ctx, pod); err != nil {
		return err
	}
	return w.makeReady(ctx, pod)
}

// makeReady gives a pod an address that no other pod had, and makes it ready.
func (w *world) makeReady(ctx context.Context, pod *corev1.Pod) error {
	w.started++
	address := fmt.Sprint("10.0.0.", w.started)
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			ContainerID: fmt.Sprintf("containerd://%s-%s-%d", pod.Name, c.Name, w.started),
		})
	}
	return w.Status().Update(ctx, pod)
}

func (w *world) neverElected() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.coordinator == ""
}

func (w *world) elect(live []*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	live = slices.DeleteFunc(slices.Clone(live), func(p *corev1.Pod) bool {
		return w.frozen != "" && p.Status.ContainerStatuses[0].ContainerID == w.frozen
	})
	best := live[len(live)-1]
	if w.bugs.lowest && w.term > 100 {
		if slices.ContainsFunc(live, func(p *corev1.Pod) bool { return p.UID == w.coordinator }) {
			return // It leads until the first fault.
		}
		best = live[0]
	}
	if w.coordinator == best.UID || w.bugs.noElection && w.term > 100 {
		return
	}
	w.coordinator, w.name = best.UID, best.Name
	w.term++
	close(w.changed)
	w.changed = make(chan struct{})
}

// publish writes status, labels and endpoints.
func (w *world) publish(ctx context.Context, live []*corev1.Pod) error {
	g := &v1.ElectionGroup{}
	if err := w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: groupName}, g); err != nil {
		return err
	}
	before := g.DeepCopy()
	w.mu.Lock()
	name, term := w.name, int64(w.term) //nolint:gosec // a term of a test
	vacant := w.bugs.vacant
	labels := !w.bugs.unlabeled && (!w.bugs.noLabels || w.term == 101)
	w.mu.Unlock()
	g.Status.Members, g.Status.Processes, g.Status.Term = new(int32(members)), nil, term
	g.Status.Coordinator = nil
	for i := members - 1; i >= 0; i-- {
		row := v1.Process{
			Pod: fmt.Sprint("ledger-", i), Priority: int32(10 * (i + 1)),
			Status: v1.ProcessCrashed, Reason: v1.ProcessPodMissing,
		}
		for _, pod := range live {
			if pod.Name == row.Pod {
				row.Status, row.Reason = v1.ProcessNormal, ""
			}
		}
		if row.Pod == name && row.Status == v1.ProcessNormal && !vacant {
			row.Status = v1.ProcessCoordinator
			g.Status.Coordinator = &v1.Coordinator{Pod: name, Priority: row.Priority, Term: term, ElectedAt: metav1.NowMicro()}
			if c := before.Status.Coordinator; c != nil && c.Term == term {
				g.Status.Coordinator.ElectedAt = c.ElectedAt
			}
		}
		g.Status.Processes = append(g.Status.Processes, row)
	}
	if err := w.Status().Patch(ctx, g, client.MergeFrom(before)); err != nil {
		return err
	}
	return w.publishRoles(ctx, live, name, labels)
}

func (w *world) publishRoles(ctx context.Context, live []*corev1.Pod, coordinator string, labels bool) error {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: w.meta("ledger-coordinator")}
	if err := w.Get(ctx, client.ObjectKeyFromObject(slice), slice); err != nil {
		return err
	}
	before := slice.DeepCopy()
	slice.Endpoints = nil
	for _, pod := range live {
		role := v1.RoleFollower
		if pod.Name == coordinator {
			role = v1.RoleCoordinator
			slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{pod.Status.PodIP}}}
		}
		old := pod.DeepCopy()
		if old.Labels[v1.RoleLabel(groupName)] == role || !labels {
			continue
		}
		pod.Labels[v1.RoleLabel(groupName)] = role
		if err := client.IgnoreNotFound(w.Patch(ctx, pod, client.MergeFrom(old))); err != nil {
			return err
		}
	}
	return w.Patch(ctx, slice, client.MergeFrom(before))
}

// forward returns the address of the agent in a pod.
func (w *world) forward(ctx context.Context, name types.NamespacedName, _ int) (*portforward.Port, error) {
	pod := &corev1.Pod{}
	if err := w.Get(ctx, name, pod); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.agents[pod.UID] == nil {
		w.agents[pod.UID] = httptest.NewServer(w.agent(pod))
	}
	return portforward.At(w.agents[pod.UID].URL, ""), nil
}

// agent is the local API of the agent in a pod.
func (w *world) agent(pod *corev1.Pod) http.Handler {
	state := func() (text []byte, leading bool, changed chan struct{}) {
		w.mu.Lock()
		defer w.mu.Unlock()
		token, leads := uint64(0), w.coordinator == pod.UID
		if leads || w.bugs.bothLead {
			token = w.term<<20 + uint64(pod.Name[len(pod.Name)-1])
		}
		text, _ = json.Marshal(map[string]any{
			"group": groupName, "self": pod.Name, "coordinator": w.name, "term": w.term, "leading": token > 0, "token": token,
		})
		return text, token > 0, w.changed
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		text, leading, changed := state()
		if !strings.HasSuffix(r.URL.Path, "/watch") {
			if !leading {
				rw.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = rw.Write(text)
			return
		}
		rw.Header().Set("Content-Type", "text/event-stream")
		for n := 1; ; n++ {
			if w.bugs.bothLead { // Only the queries contradict each other.
				text = []byte(
					strings.Replace(string(text), `"leading":true`, fmt.Sprintf(`"leading":%t`, w.isCoordinator(pod.UID)), 1))
			}
			_, _ = fmt.Fprintf(rw, "id: %s-%d\ndata: %s\n\n", pod.UID[:8], n, text)
			rw.(http.Flusher).Flush() //nolint:errcheck // httptest supports it
			select {
			case <-changed:
			case <-r.Context().Done():
				return
			}
			text, _, changed = state()
		}
	})
}

func (w *world) isCoordinator(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.coordinator == uid
}

// run returns a run of faults in this world. The first coordinator is elected and published, so that the timeout of the
// run needn't include that.
func (w *world) run(faults int, names ...string) *live.Run {
	testwait.NoError(w.t, func() error {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: w.meta("ledger-coordinator")}
		if err := w.Get(w.t.Context(), client.ObjectKeyFromObject(slice), slice); err != nil {
			return err
		}
		if len(slice.Endpoints) == 0 {
			return errors.New("no coordinator is published")
		}
		return nil
	})
	g := &v1.ElectionGroup{}
	must.Succeed(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: groupName}, g))
	return &live.Run{
		Client: w, Subject: &live.Group{Object: g, Forward: w.forward}, OperatorNamespace: w.namespace, Seed: 1,
		Timeout: time.Minute, Printf: w.t.Logf, Kinds: kinds(w.t, names...), Faults: faults,
	}
}
