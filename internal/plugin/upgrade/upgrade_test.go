package upgrade

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/plugin/upgrade/plan"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/pluginenv"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// upgradeEnv is a group of three pods that have an old agent, with what creates pods again.
type upgradeEnv struct {
	*pluginenv.Env
	group   *v1.ElectionGroup
	options options
	out     bytes.Buffer

	mutex sync.Mutex
	// agent is that of new pods. If it is empty, pods aren't created again.
	agent string
	// refusals is how often the coordinator will refuse to step down.
	refusals int
	// loses: the coordinator has been succeeded by ledger-1 after it refused.
	loses bool
	// order are the pods that were deleted, and the coordinators that were asked to step down.
	order []string
}

func newUpgradeEnv(t *testing.T) *upgradeEnv {
	t.Helper()
	e := &upgradeEnv{Env: pluginenv.New(t, server), agent: "agent:2", options: options{agentImage: "agent:2", timeout: testwait.Limit}}
	var cmd cobra.Command
	e.options.cluster.AddTo(&cmd)
	for flag, value := range map[string]string{"kubeconfig": e.Kubeconfig, "namespace": e.Namespace} {
		must.Succeed(t, cmd.Flags().Set(flag, value))
	}
	e.group = e.CreateGroup(t, "ledger")
	e.group.Status.Conditions = append(e.group.Status.Conditions, metav1.Condition{
		Type: string(v1.ConditionAvailable), Status: metav1.ConditionTrue, Reason: string(v1.ReasonElected), LastTransitionTime: pluginenv.LongAgo,
	})
	must.Succeed(t, e.Status().Update(t.Context(), e.group))
	for _, m := range e.group.Spec.Members {
		must.Succeed(t, e.createMember(t.Context(), m.Pod, "agent:1"))
	}
	return e
}

// createMember creates a ready pod with an agent. The API server deletes it at once, because
// no node runs it.
func (e *upgradeEnv) createMember(ctx context.Context, name, agent string) error {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, Name: name, Labels: map[string]string{v1.LabelAgent: v1.AgentEnabled, "app": "ledger"}, Annotations: map[string]string{v1.AnnotationGroups: "ledger"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "ledger", UID: "1", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: v1.AgentContainer, Image: agent, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
			Containers:     []corev1.Container{{Name: "application", Image: "application"}},
		},
	}
	if err := e.Create(ctx, p); err != nil {
		return err
	}
	p.Status.Phase, p.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return e.Status().Update(ctx, p)
}

// recreate creates pods again, as their controller would, until the test ends.
func (e *upgradeEnv) recreate(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watch, err := e.Watch(ctx, &corev1.PodList{}, client.InNamespace(e.Namespace))
	must.Succeed(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range watch.ResultChan() {
			p, isPod := event.Object.(*corev1.Pod)
			if !isPod || event.Type != "DELETED" {
				continue
			}
			e.mutex.Lock()
			e.order = append(e.order, "delete "+p.Name)
			agent := e.agent
			e.mutex.Unlock()
			if agent == "" {
				continue
			}
			if err := e.createMember(ctx, p.Name, agent); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// forward connects to an agent that steps down, in favor of ledger-1.
func (e *upgradeEnv) forward(t *testing.T) clusteraccess.PortForwarder {
	t.Helper()
	return func(_ context.Context, pod types.NamespacedName) (*portforward.Port, error) {
		e.mutex.Lock()
		refused := e.refusals > 0
		e.refusals--
		e.order = append(e.order, "step down "+pod.Name)
		e.mutex.Unlock()
		agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fake := &pluginenv.FakeAgent{Status: http.StatusOK, Answer: pluginenv.Successor, Requested: make(chan struct{})}
			if refused {
				fake.Status, fake.Answer = http.StatusConflict, `{"error":"no member is ready to take over"}`
			}
			fake.ServeHTTP(w, r)
		}))
		t.Cleanup(func() {
			agent.CloseClientConnections()
			agent.Close()
		})
		if !refused || e.loses {
			e.SetCoordinator(t, e.group, 1, 101) //nolint:contextcheck // it uses that of the test
		}
		return portforward.At(agent.URL, ""), nil
	}
}

// upgrade runs the command. The output has the namespace bank in its place.
func (e *upgradeEnv) upgrade(t *testing.T) (string, error) {
	t.Helper()
	e.out.Reset()
	err := e.options.run(t.Context(), &e.out, "ledger", e.forward(t))
	return strings.ReplaceAll(e.out.String(), e.Namespace, "bank"), err
}

func (e *upgradeEnv) errorText(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), e.Namespace, "bank")
}

func (e *upgradeEnv) expectOrder(t *testing.T, want ...string) {
	t.Helper()
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if !slices.Equal(e.order, want) {
		t.Errorf("got %q, want %q", e.order, want)
	}
}

func TestUpgradeReplacesTheCoordinatorLast(t *testing.T) {
	e := newUpgradeEnv(t)
	e.recreate(t)
	e.options.dryRun = true
	got, err := e.upgrade(t)
	if want := "bank: would replace ledger-0 (agent:1)\nbank: would replace ledger-1 (agent:1)\nbank: would replace ledger-2 (agent:1), after it has handed over ledger\n"; err != nil || got != want {
		t.Errorf("dry run: got %v and\n%s\nwant\n%s", err, got, want)
	}
	e.expectOrder(t)
	e.options.dryRun = false
	if got, err = e.upgrade(t); err != nil {
		t.Fatalf("got %v after\n%s", err, got)
	}
	e.expectOrder(t, "delete ledger-0", "delete ledger-1", "step down ledger-2", "delete ledger-2")
	if !strings.Contains(got, "bank: ledger-2 handed over ledger: ledger-1 leads in term 101") {
		t.Errorf("got\n%s\nwant the hand-over", got)
	}
	if got, err = e.upgrade(t); err != nil || got != "all agents are agent:2\n" {
		t.Errorf("again: got %v and\n%s", err, got)
	}
}

// TestUpgradeWaitsForASuccessor: a member that was replaced is up before it is ready to take over.
func TestUpgradeWaitsForASuccessor(t *testing.T) {
	e := newUpgradeEnv(t)
	e.recreate(t)
	e.refusals = 1
	got, err := e.upgrade(t)
	if err != nil || strings.Count(got, "handed over") != 1 {
		t.Errorf("got %v and\n%s\nwant one hand-over", err, got)
	}
	e.expectOrder(t, "delete ledger-0", "delete ledger-1", "step down ledger-2", "step down ledger-2", "delete ledger-2")
}

// TestUpgradeSaysWhatNeedsNoHandOver: the pod has lost the office before the upgrade asked again.
func TestUpgradeSaysWhatNeedsNoHandOver(t *testing.T) {
	e := newUpgradeEnv(t)
	e.recreate(t)
	e.refusals, e.loses = 1, true
	got, err := e.upgrade(t)
	if err != nil || !strings.Contains(got, "bank: ledger-2 doesn't lead ledger any more: ledger-1 does\n") {
		t.Errorf("got %v and\n%s\nwant that ledger-2 doesn't lead any more", err, got)
	}
	e.expectOrder(t, "delete ledger-0", "delete ledger-1", "step down ledger-2", "delete ledger-2")
}

// TestUpgradeGivesUpWithoutASuccessor: it leaves the coordinator alone.
func TestUpgradeGivesUpWithoutASuccessor(t *testing.T) {
	e := newUpgradeEnv(t)
	e.recreate(t)
	e.options.timeout = 3 * pollInterval
	e.refusals = 1 << 10
	_, err := e.upgrade(t)
	if want := "cannot replace pod bank/ledger-2: gave up after 3s: the agent in pod ledger-2 refused to step down: no member is ready to take over; " +
		"to continue later, run the command again"; e.errorText(err) != want {
		t.Errorf("got %q, want %q", e.errorText(err), want)
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if slices.Contains(e.order, "delete ledger-2") {
		t.Errorf("got %q, want ledger-2 kept", e.order)
	}
}

// TestUpgradeContinues: the pod doesn't come back, until its controller runs again.
func TestUpgradeContinues(t *testing.T) {
	e := newUpgradeEnv(t)
	e.agent = ""
	e.recreate(t)
	e.options.timeout = 3 * pollInterval
	_, err := e.upgrade(t)
	if want := "pod bank/ledger-0 was evicted: gave up after 3s: member ledger-0 of group ledger has no pod; to continue later, run the command again"; e.errorText(err) != want {
		t.Errorf("got %q, want %q", e.errorText(err), want)
	}
	must.Succeed(t, e.createMember(t.Context(), "ledger-0", "agent:2"))
	e.mutex.Lock()
	e.agent = "agent:2"
	e.mutex.Unlock()
	e.options.timeout = testwait.Limit
	if got, err := e.upgrade(t); err != nil {
		t.Fatalf("got %v after\n%s", err, got)
	}
	e.expectOrder(t, "delete ledger-0", "delete ledger-1", "step down ledger-2", "delete ledger-2")
}

// TestUpgradeStopsAtPodsWithTheirOwnAgent: their template has the agent.
func TestUpgradeStopsAtPodsWithTheirOwnAgent(t *testing.T) {
	e := newUpgradeEnv(t)
	e.agent = "agent:1"
	e.recreate(t)
	_, err := e.upgrade(t)
	if want := "pod bank/ledger-0 was created again with the agent agent:1, not agent:2: its pod template has the agent (remove it there, the webhook adds it), " +
		"or another version of the operator injects it"; e.errorText(err) != want {
		t.Errorf("got %q, want %q", e.errorText(err), want)
	}
	e.expectOrder(t, "delete ledger-0")
}

// TestUpgradeRespectsDisruptionBudgets: also before the coordinator steps down.
func TestUpgradeRespectsDisruptionBudgets(t *testing.T) {
	e := newUpgradeEnv(t)
	e.recreate(t)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "ledger"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "ledger"}},
		},
	}
	must.Succeed(t, e.Create(t.Context(), budget))
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, DesiredHealthy: 3, CurrentHealthy: 3, ExpectedPods: 3}
	must.Succeed(t, e.Status().Update(t.Context(), budget))
	for _, name := range []string{"ledger-0", "ledger-1"} { // Only the coordinator is outdated.
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name}}
		must.Succeed(t, e.Get(t.Context(), client.ObjectKeyFromObject(p), p))
		p.Spec.InitContainers[0].Image = "agent:2"
		must.Succeed(t, e.Update(t.Context(), p))
	}
	e.options.timeout = 2 * pollInterval
	_, err := e.upgrade(t)
	if got := e.errorText(err); !strings.HasPrefix(got, "gave up after 2s: the eviction of pod bank/ledger-2 is refused: Cannot evict pod as it would violate the pod's disruption budget") {
		t.Errorf("got %q, want the refusal of the disruption budget", got)
	}
	e.expectOrder(t)
}

// expectRefusal expects that no pod is replaced by the agent of the installed operator.
func (e *upgradeEnv) expectRefusal(t *testing.T, prefix string) {
	t.Helper()
	e.options.agentImage = ""
	_, err := e.upgrade(t)
	if got := e.errorText(err); !strings.HasPrefix(got, prefix) {
		t.Errorf("got %q, want %s", got, prefix)
	}
	e.expectOrder(t)
}

func TestUpgradeWaitsForTheOperator(t *testing.T) {
	e := newUpgradeEnv(t)
	e.CreateOperator(t)
	e.expectRefusal(t, "the operator is being updated, and new pods might get its former agent")
}

// TestUpgradeNeedsTheOperator: without it, an evicted pod can't be created again.
func TestUpgradeNeedsTheOperator(t *testing.T) {
	e := newUpgradeEnv(t)
	e.CreateOperator(t)
	var operator appsv1.Deployment
	must.Succeed(t, e.Get(t.Context(), client.ObjectKey{Namespace: e.Namespace, Name: "conclave-manager"}, &operator))
	operator.Status = appsv1.DeploymentStatus{ObservedGeneration: operator.Generation, Replicas: 1, UpdatedReplicas: 1, UnavailableReplicas: 1}
	must.Succeed(t, e.Status().Update(t.Context(), &operator))
	e.expectRefusal(t, "no replica of the operator in namespace bank is available")
}

// TestUpgradeWhileOthersChangeThings: somebody else evicts the coordinator's pod, whose controller
// creates another one, and then deletes the group.
func TestUpgradeWhileOthersChangeThings(t *testing.T) {
	e := newUpgradeEnv(t)
	u := upgrader{client: e, out: &e.out, namespace: e.Namespace, group: "ledger", image: "agent:2", options: &e.options, forward: e.forward(t), known: map[types.UID]bool{}}
	state, err := u.gather(t.Context())
	must.Succeed(t, err)
	steps := state.Plan()
	coordinator := &steps[len(steps)-1]
	must.Succeed(t, e.Delete(t.Context(), coordinator.Pod.DeepCopy()))
	must.Succeed(t, e.createMember(t.Context(), coordinator.Pod.Name, "agent:2"))
	if err := u.replace(t.Context(), coordinator); err != nil || len(coordinator.HandOvers) != 1 {
		t.Errorf("got %v for %+v, want no error", err, coordinator)
	}
	e.expectOrder(t) // Nobody had to step down.
	must.Succeed(t, e.Delete(t.Context(), e.group))
	step, err := u.next(t.Context())
	if want := "group bank/ledger was deleted meanwhile: its pods aren't replaced any more"; step != nil || e.errorText(err) != want {
		t.Errorf("got %+v, %q, want the error %q", step, e.errorText(err), want)
	}
}

// TestUpgradeWaitsForTheAPIServer: it restarts after a pod was evicted.
func TestUpgradeWaitsForTheAPIServer(t *testing.T) {
	reads := 0
	lists := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		if reads++; reads == 1 {
			return &url.Error{Op: "Get", URL: "https://example.org", Err: syscall.ECONNREFUSED}
		}
		return nil
	}}
	u := &upgrader{client: interceptor.NewClient(pluginenv.New(t, server).WithWatch, lists), options: &options{timeout: time.Minute}}
	u.options.cluster.AddTo(&cobra.Command{})
	if err := u.wait(t.Context(), func(*plan.State) (string, error) { return "", nil }); err != nil || reads < 3 {
		t.Errorf("got %v after %d reads, want another attempt", err, reads)
	}
	reads, u.options.timeout = 0, time.Nanosecond
	want := "gave up after 1ns: cannot reach the API server: connection refused; to continue later, run the command again"
	if err := u.wait(t.Context(), func(*plan.State) (string, error) { return "", nil }); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
