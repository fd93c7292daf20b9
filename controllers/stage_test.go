package controllers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/controllers"
	"github.com/conclave-dev/conclave/internal/control"
	"github.com/conclave-dev/conclave/internal/standin"
)

// stage is a namespace with pods whose agents do as they are told, and operators
// that come and go.
type stage struct {
	t         testing.TB
	scheme    *runtime.Scheme
	client    client.Client
	namespace string
	authority *standin.Authority
	network   standin.Network

	mu     sync.Mutex
	bundle string
	turned chan struct{}
	agents map[string]*standin.Agent
	ips    int
}

func newStage(t testing.TB) *stage {
	t.Helper()
	config := apiServer.Config(t)
	s := &stage{
		t: t, scheme: runtime.NewScheme(), authority: standin.NewAuthority(t),
		turned: make(chan struct{}), agents: map[string]*standin.Agent{},
	}
	s.bundle = s.authority.Authorities()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(s.scheme); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if s.client, err = client.New(config, client.Options{Scheme: s.scheme}); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "stage-"}}
	if err := s.client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	s.namespace = namespace.Name
	return s
}

// Bundle and Changed are of controllers.Authorities.
func (s *stage) Bundle(context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []byte(s.bundle), nil
}

func (s *stage) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turned
}

// actor is an operator that can be watched and killed.
type actor struct {
	s       *stage
	cancel  context.CancelFunc
	synced  func(context.Context) bool
	done    chan struct{}
	metrics *prometheus.Registry

	mu     sync.Mutex
	writes []string
	// lull is the operator's: 0 is a long one, and less than that the usual.
	lull time.Duration
	// last is the number of the write after which it dies, or 0; fails that of the
	// write that fails, and lost that of the one whose answer doesn't arrive.
	last, fails, lost int
	dead              bool
	// thawed is closed unless what it watches of the groups doesn't arrive.
	thawed chan struct{}
}

// trip counts what is written, and ends the operator's life.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var (
	errDead   = errors.New("this operator is dead")
	errFailed = errors.New("the test has this write fail")
)

func (a *actor) pass(next http.RoundTripper) http.RoundTripper {
	return trip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			a.mu.Lock()
			dead := a.dead
			a.mu.Unlock()
			if dead {
				return nil, errDead
			}
			answer, err := next.RoundTrip(r)
			if err == nil && r.URL.Query().Get("watch") == "true" && strings.HasSuffix(r.URL.Path, "/electiongroups") {
				answer.Body = &ice{ReadCloser: answer.Body, actor: a, closed: make(chan struct{})}
			}
			return answer, err
		}
		a.mu.Lock()
		if a.dead {
			a.mu.Unlock()
			return nil, errDead
		}
		path := strings.ReplaceAll(r.URL.Path, a.s.namespace, "NAMESPACE")
		a.writes = append(a.writes, r.Method+" "+path)
		number := len(a.writes)
		// Writes are in parallel: the ones after the last don't get out any more.
		a.dead = number == a.last
		a.mu.Unlock()
		if number == a.fails {
			return nil, errFailed
		}
		answer, err := next.RoundTrip(r)
		if number == a.last {
			a.cancel()
		}
		if number == a.lost && err == nil {
			_ = answer.Body.Close()
			return nil, errFailed
		}
		return answer, err
	})
}

// ice is what is watched, which doesn't arrive while it is frozen.
type ice struct {
	io.ReadCloser
	actor  *actor
	once   sync.Once
	closed chan struct{}
}

func (i *ice) Read(p []byte) (int, error) {
	n, err := i.ReadCloser.Read(p)
	i.actor.mu.Lock()
	thawed := i.actor.thawed
	i.actor.mu.Unlock()
	if thawed != nil {
		select {
		case <-thawed:
		case <-i.closed:
		}
	}
	return n, err
}

func (i *ice) Close() error {
	i.once.Do(func() { close(i.closed) })
	return i.ReadCloser.Close()
}

// freeze has the operator see no change of a group any more, until thaw.
func (a *actor) freeze() (thaw func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	thawed := make(chan struct{})
	a.thawed = thawed
	return func() { close(thawed) }
}

func (a *actor) written() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.writes)
}

// stop kills it, and waits until it is gone. A manager that is told to end before
// its caches are there never does: its runnableGroup waits for them in vain.
func (a *actor) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	a.synced(ctx)
	a.mu.Lock()
	a.dead = true
	a.mu.Unlock()
	a.cancel()
	<-a.done
}

// operator starts an operator. Its lull is long, so that a test on a busy machine
// can have several agents say something at once.
func (s *stage) operator(changes ...func(*actor)) *actor {
	s.t.Helper()
	a := &actor{s: s, done: make(chan struct{}), metrics: prometheus.NewRegistry()}
	for _, change := range changes {
		change(a)
	}
	if a.lull < 0 {
		a.lull = 0 // the usual one
	} else if a.lull == 0 {
		a.lull = 100 * time.Millisecond
	}
	config := rest.CopyConfig(apiServer.Config(s.t))
	config.QPS = -1
	config.Impersonate.UserName = entitled(s.t)
	config.Wrap(a.pass)
	caches := controllers.Cache()
	caches.DefaultNamespaces = map[string]cache.Config{s.namespace: {}}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: s.scheme, Cache: caches, Logger: testr.NewWithInterface(s.t, testr.Options{Verbosity: -1}),
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel, a.synced = cancel, mgr.GetCache().WaitForCacheSync
	err = controllers.Setup(mgr, controllers.Options{
		Credentials: s.authority, Authorities: s, Dial: s.network.Dial,
		Lull: a.lull, Metrics: a.metrics, SkipNameValidation: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(a.done)
		_ = mgr.Start(ctx)
	}()
	s.t.Cleanup(a.stop)
	return a
}

// pod makes a running pod with an agent that does as it is told.
func (s *stage) pod(name string, groups ...string) *standin.Agent {
	s.t.Helper()
	return s.podLike(name, groups, func(*corev1.Pod) {})
}

func (s *stage) podLike(name string, groups []string, change func(*corev1.Pod)) *standin.Agent {
	s.t.Helper()
	pod := s.barePod(name, func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1.AnnotationGroups: strings.Join(groups, ",")}
		pod.Spec.InitContainers = []corev1.Container{{
			Name: v1.AgentContainer, Image: "agent", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		}}
		change(pod)
	})
	agent := standin.New(s.t, s.authority, &s.network, s.namespace, name, pod.Status.PodIP, groups...)
	agent.Obey = func(call standin.Call) int { return obey(agent, call) }
	agent.Run()
	s.mu.Lock()
	s.agents[name] = agent
	s.mu.Unlock()
	return agent
}

// barePod makes a running pod without an agent.
func (s *stage) barePod(name string, change func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	change(pod)
	if err := s.client.Create(s.t.Context(), pod); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.ips++
	ip := fmt.Sprintf("10.1.%d.%d", s.ips/250, s.ips%250+1)
	if strings.HasSuffix(name, "-six") {
		ip = fmt.Sprintf("fd00::%x", s.ips)
	}
	s.mu.Unlock()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIP = ip
	pod.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	if err := s.client.Status().Update(s.t.Context(), pod); err != nil {
		s.t.Fatal(err)
	}
	return pod
}

// deletePod deletes a pod at once, with its agent.
func (s *stage) deletePod(name string) {
	s.t.Helper()
	s.mu.Lock()
	agent := s.agents[name]
	delete(s.agents, name)
	s.mu.Unlock()
	if agent != nil {
		agent.Stop()
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	if err := s.client.Delete(s.t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		s.t.Fatal(err)
	}
}

// obey is what an agent does that is told something.
func obey(a *standin.Agent, call standin.Call) int {
	name, rest, _ := strings.Cut(strings.TrimPrefix(call.Path, control.GroupsPath), "/")
	name, _, _ = strings.Cut(name, "?")
	switch {
	case rest == "standing":
		a.Change(name, func(r *control.Report) {
			r.Withheld = call.Body == `{"standing":false}`
			r.Standing, r.ChangedAt = !r.Withheld, time.Now()
		})
	case call.Method == http.MethodDelete:
		if _, ok := a.Report(name); ok {
			a.Leave(name)
		}
	case call.Method == http.MethodPut:
		var document control.Document
		if json.Unmarshal([]byte(call.Body), &document) != nil {
			return http.StatusBadRequest
		}
		adopt(a, document)
	}
	return http.StatusNoContent
}

// adopt goes by a document.
func adopt(a *standin.Agent, document control.Document) {
	a.Change(document.Group.Name, func(r *control.Report) {
		if document.Revision <= r.Revision {
			return
		}
		if r.UID != document.UID {
			*r = control.Report{Group: r.Group, Pod: r.Pod, Standing: true}
		}
		r.UID, r.Generation, r.Revision = document.UID, document.Generation, document.Revision
		r.Version, r.Digest = document.Group.Version, fmt.Sprint("digest of ", document.Group.Version)
		r.ChangedAt = time.Now()
		up := map[string]control.Row{}
		for _, row := range r.Processes {
			up[row.Name] = row
		}
		r.Processes = nil
		for _, m := range document.Group.Members {
			row := control.Row{Name: m.Name, Priority: m.Priority, Status: "Normal", Connected: true}
			if before, ok := up[m.Name]; ok {
				row.Status, row.Connected = before.Status, before.Connected
			}
			r.Processes = append(r.Processes, row)
		}
		slices.SortStableFunc(r.Processes, func(a, b control.Row) int { return int(b.Priority) - int(a.Priority) })
	})
}

// elect has all agents of a group that are there say that one leads, and that
// those that aren't there have crashed.
func (s *stage) elect(group, coordinator string, term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now()
	for _, agent := range s.agents {
		if _, ok := agent.Report(group); !ok {
			continue
		}
		agent.Change(group, func(r *control.Report) {
			r.Coordinator, r.Term, r.ElectedAt, r.ChangedAt, r.Electing = coordinator, term, at, at, false
			for i := range r.Processes {
				row := &r.Processes[i]
				_, row.Connected = s.agents[row.Name]
				switch {
				case row.Name == coordinator:
					row.Status = "Coordinator"
				case row.Connected:
					row.Status = "Normal"
				default:
					row.Status = "Crashed"
				}
			}
		})
	}
}

// awaitAdopted waits until agents go by a version of the list, this group's.
func (s *stage) awaitAdopted(group string, version uint32, pods ...string) {
	s.t.Helper()
	uid := string(s.group(group).UID)
	for _, pod := range pods {
		s.await(fmt.Sprintf("%s has adopted version %d of %s", pod, version, group), func() bool {
			s.mu.Lock()
			agent := s.agents[pod]
			s.mu.Unlock()
			report, ok := agent.Report(group)
			return ok && report.UID == uid && report.Version >= version
		})
	}
}

// declared makes a group of members: the first has priority 10, the next 20...
func (s *stage) declared(name string, change func(*v1.ElectionGroup), pods ...string) *v1.ElectionGroup {
	s.t.Helper()
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	for i, pod := range pods {
		group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: pod, Priority: int32(10 * (i + 1))})
	}
	if change != nil {
		change(group)
	}
	if err := s.client.Create(s.t.Context(), group); err != nil {
		s.t.Fatal(err)
	}
	return group
}

func (s *stage) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: name}
}

func (s *stage) group(name string) *v1.ElectionGroup {
	s.t.Helper()
	group := &v1.ElectionGroup{}
	if err := s.client.Get(s.t.Context(), s.key(name), group); err != nil {
		s.t.Fatal(err)
	}
	return group
}

// edit changes a group as a user does.
func (s *stage) edit(name string, change func(*v1.ElectionGroup)) {
	s.t.Helper()
	group := s.group(name)
	patch := client.MergeFrom(group.DeepCopy())
	change(group)
	if err := s.client.Patch(s.t.Context(), group, patch); err != nil {
		s.t.Fatal(err)
	}
}

// await waits for a condition.
func (s *stage) await(what string, holds func() bool) {
	s.t.Helper()
	late := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-late:
			s.t.Fatalf("waited in vain until %s\n%s", what, s.describe())
		}
	}
}

// describe is what a test that fails shows.
func (s *stage) describe() string {
	var groups v1.ElectionGroupList
	if err := s.client.List(context.Background(), &groups, client.InNamespace(s.namespace)); err != nil {
		return err.Error()
	}
	var text strings.Builder
	for i := range groups.Items {
		status, err := json.MarshalIndent(groups.Items[i].Status, "", " ")
		fmt.Fprintln(&text, groups.Items[i].Name, string(status), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, agent := range s.agents {
		fmt.Fprintf(&text, "%s was told %d times\n", name, len(agent.Calls()))
	}
	return text.String()
}

// awaitCoordinator waits until all that follows from an election is there.
func (s *stage) awaitCoordinator(group, pod string, term int64) {
	s.t.Helper()
	s.await(fmt.Sprintf("%s leads %s in term %d", pod, group, term), func() bool {
		status := s.group(group).Status
		return status.Coordinator != nil && status.Coordinator.Pod == pod && status.Term == term && status.Coordinator.Term == term
	})
}

func (s *stage) role(pod, group string) string {
	s.t.Helper()
	found := &corev1.Pod{}
	if err := s.client.Get(s.t.Context(), s.key(pod), found); err != nil {
		s.t.Fatal(err)
	}
	return found.Labels[v1.RoleLabel(group)]
}

func (s *stage) awaitRole(pod, group, role string) {
	s.t.Helper()
	s.await(fmt.Sprintf("%s has the role %q in %s", pod, role, group), func() bool { return s.role(pod, group) == role })
}
