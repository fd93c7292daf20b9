package live_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/live"
	"github.com/conclave-dev/conclave/internal/chaos/nodefault"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

var helperLabels = client.MatchingLabels{"app.kubernetes.io/name": "conclave-chaos"}

// nodes plays the parts of kubelets and of the processes in helpers.
type nodes struct {
	w *world
	// oldImage: the image of helpers has no program for faults. lacks are the actions that aren't possible.
	oldImage bool
	lacks    map[string]string
	// exitCode is that of helpers.
	exitCode int
	// injected is called after each fault.
	injected func()

	// killed are the restarts of containers that are under way.
	killed sync.WaitGroup

	mu       sync.Mutex
	requests []nodefault.Request
	undone   int
	sessions map[string]context.CancelFunc // by helper
}

func newNodes(t *testing.T, w *world) *nodes {
	t.Helper()
	n := &nodes{w: w, sessions: map[string]context.CancelFunc{}}
	end := repeat(t, "the kubelets retry", 20*time.Millisecond, n.reconcile)
	t.Cleanup(func() { end(); n.killed.Wait() })
	return n
}

func (n *nodes) helpers(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := n.w.List(ctx, &list, client.InNamespace(n.w.namespace), helperLabels)
	return list.Items, err
}

// reconcile starts and ends helpers.
func (n *nodes) reconcile(ctx context.Context) error {
	pods, err := n.helpers(ctx)
	for i := range pods {
		pod := &pods[i]
		switch {
		case pod.DeletionTimestamp != nil:
			err = errors.Join(err, client.IgnoreNotFound(n.w.Delete(ctx, pod, client.GracePeriodSeconds(0))))
		case pod.Status.Phase == corev1.PodPending:
			state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			if n.oldImage {
				state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", Message: "no such program"}}
			}
			pod.Status.Phase = corev1.PodRunning
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node-fault", State: state}}
			err = errors.Join(err, client.IgnoreNotFound(n.w.Status().Update(ctx, pod)))
		}
	}
	return err
}

// attach runs the process of a helper, which ends with the connection.
func (n *nodes) attach(ctx context.Context, pod types.NamespacedName, _ string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.mu.Lock()
	n.sessions[pod.Name] = cancel
	n.mu.Unlock()
	err := nodefault.Serve(ctx, in, out, n)
	ended := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	phase := corev1.PodSucceeded
	if n.exitCode != 0 {
		phase = corev1.PodFailed
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
		`{"status":{"phase":%q,"containerStatuses":[{"name":"node-fault","image":"","imageID":"","ready":false,"restartCount":0,"state":{"running":null,"terminated":{"exitCode":%d}}}]}}`, phase, n.exitCode))
	return errors.Join(err, client.IgnoreNotFound(n.w.Status().Patch(context.WithoutCancel(ctx), ended, patch)))
}

// breakConnections ends all connections to helpers.
func (n *nodes) breakConnections() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, cancel := range n.sessions {
		cancel()
	}
}

func (n *nodes) Check(*nodefault.Request) map[string]string {
	actions := map[string]string{nodefault.Kill: "", nodefault.Stop: "", nodefault.Drop: "", nodefault.Isolate: ""}
	maps.Copy(actions, n.lacks)
	return actions
}

// Inject prevents the first container's pod from leading until that is undone, or until the kubelet has restarted a container
// that was killed.
func (n *nodes) Inject(r *nodefault.Request) (func() error, error) {
	n.mu.Lock()
	n.requests = append(n.requests, *r)
	n.mu.Unlock()
	n.freeze("containerd://" + r.Containers[0])
	if n.injected != nil {
		n.injected()
	}
	if r.Action == nodefault.Kill {
		n.killed.Go(func() { n.restart("containerd://" + r.Containers[0]) })
		return nil, nil //nolint:nilnil // there is nothing to undo
	}
	return func() error {
		n.freeze("")
		n.mu.Lock()
		defer n.mu.Unlock()
		n.undone++
		return nil
	}, nil
}

// restart restarts a container when another pod leads.
func (n *nodes) restart(container string) {
	n.w.mu.Lock()
	before, changed := n.w.coordinator, n.w.changed
	n.w.mu.Unlock()
	<-changed
	testwait.NoError(n.w.t, func() error {
		var pods corev1.PodList
		if err := n.w.List(n.w.t.Context(), &pods, client.InNamespace(n.w.namespace)); err != nil {
			return err
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.UID != before {
				continue
			}
			for k := range pod.Status.ContainerStatuses {
				if s := &pod.Status.ContainerStatuses[k]; s.ContainerID == container {
					s.RestartCount++
					s.ContainerID = fmt.Sprintf("%s-%d", container, s.RestartCount)
					s.State.Running.StartedAt = metav1.Now()
				}
			}
			return n.w.Status().Update(n.w.t.Context(), pod)
		}
		return errors.New("no such pod")
	})
	n.freeze("")
}

func (n *nodes) freeze(container string) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.frozen = container
}

func (n *nodes) counts() (injected, undone int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.requests), n.undone
}

// withPods returns a run that freezes pods by helpers.
func withPods(t *testing.T, faults int) (*live.Run, *live.Pods, *nodes) {
	t.Helper()
	t.Parallel()
	w := newWorld(t, bugs{})
	n := newNodes(t, w)
	r := w.run()
	pods := &live.Pods{Client: w, Attach: n.attach, Namespace: w.namespace, Limit: time.Hour}
	r.Kinds, r.Faults, r.Machines = kinds(t, chaos.Freeze), faults, pods
	return r, pods, n
}

func start(t *testing.T, r *live.Run) {
	t.Helper()
	must.Succeed(t, r.Machines.Start(t.Context(), r.Subject))
	t.Cleanup(func() { _ = r.Machines.Stop(context.Background()) })
}

func TestHelpersInjectFaults(t *testing.T) {
	r, pods, n := withPods(t, 2)
	start(t, r)
	helpers, err := n.helpers(t.Context())
	if err != nil || len(helpers) != members {
		t.Fatalf("got %d helpers, %v, want one on each node", len(helpers), err)
	}
	spec := helpers[0].Spec
	if !spec.HostPID || !spec.HostNetwork || !*spec.Containers[0].SecurityContext.Privileged || *spec.ActiveDeadlineSeconds < 2*3600 ||
		spec.Containers[0].Image != "any/chaos:1" || !spec.Containers[0].StdinOnce || spec.Tolerations[0].Operator != corev1.TolerationOpExists {
		t.Errorf("got %+v, want a privileged pod with the image of the agent's release that ends by itself", spec)
	}
	result := do(t, r)
	if len(result.Violations) > 0 || len(result.Faults) != 2 || result.Faults[1].Coordinator != "ledger-1" || result.Faults[1].Settled == nil {
		t.Errorf("got %+v, want two failovers to ledger-1 without violations", result)
	}
	if injected, undone := n.counts(); injected != 2 || undone != 2 {
		t.Errorf("got %d faults of which %d were undone, want 2 and 2", injected, undone)
	}
	got := n.requests[0]
	if got.Action != nodefault.Stop || got.Limit != time.Hour || len(got.Containers) != 2 || !strings.HasPrefix(got.Containers[0], "ledger-2-application-") {
		t.Errorf("got request %+v, want one that stops both containers of ledger-2", got)
	}
	must.Succeed(t, pods.Stop(t.Context()))
	testwait.NoError(t, func() error {
		if helpers, err := n.helpers(t.Context()); err != nil || len(helpers) > 0 {
			return errors.Join(err, errors.New("helpers remain"))
		}
		return nil
	})
}

// The kubelet restarts a container later and later. The command doesn't wait for that.
func TestPodWhoseContainerHasEndedTwiceIsReplaced(t *testing.T) {
	r, _, n := withPods(t, 5)
	r.Kinds = kinds(t, chaos.KillApp)
	start(t, r)
	result := do(t, r)
	if len(result.Violations) > 0 || len(result.Faults) != 5 || result.Faults[4].Settled == nil {
		t.Errorf("got %+v, want five failovers without violations", result)
	}
	if started := n.w.started; started != members+2 {
		t.Errorf("got %d pods, want %d: the coordinator's is replaced before the third and the fifth fault", started, members+2)
	}
}

func TestInterruptedRunUndoesTheFaultsOfHelpers(t *testing.T) {
	for name, connected := range map[string]bool{"with connections": true, "without connections": false} {
		t.Run(name, func(t *testing.T) {
			r, _, n := withPods(t, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n.injected = func() {
				cancel()
				if !connected {
					n.breakConnections()
				}
			}
			start(t, r)
			result, err := r.Do(ctx)
			if connected && (err != nil || !result.Interrupted) {
				t.Errorf("got %+v, %v, want an interrupted run", result, err)
			}
			if injected, undone := n.counts(); injected != 1 || undone != 1 {
				t.Errorf("got %d faults of which %d were undone, want 1 and 1", injected, undone)
			}
		})
	}
}

// Whoever interrupts the start of a run must not leave a privileged pod behind.
func TestHelpersWhoseStartIsInterruptedAreDeleted(t *testing.T) {
	r, pods, n := withPods(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pods.Client = interceptor.NewClient(n.w, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			err := c.Create(context.WithoutCancel(ctx), o, options...)
			cancel()
			return errors.Join(err, ctx.Err()) // The response doesn't arrive.
		},
	})
	if err := r.Machines.Start(ctx, r.Subject); err == nil {
		t.Error("got no error, want that the start is interrupted")
	}
	if err := pods.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	testwait.NoError(t, func() error {
		if helpers, err := n.helpers(t.Context()); err != nil || len(helpers) > 0 {
			return errors.Join(err, errors.New("helpers remain"))
		}
		return nil
	})
}

// A helper that was killed can't have undone its fault.
func TestKilledHelperIsReported(t *testing.T) {
	r, _, n := withPods(t, 1)
	r.Timeout = 10 * time.Second // In this world, nothing is elected when a pod is frozen.
	n.exitCode = 137
	n.injected = n.breakConnections
	start(t, r)
	result, err := r.Do(t.Context())
	if err == nil || !strings.Contains(err.Error(), "was killed: stopped processes remain stopped") {
		t.Errorf("got %+v, %v, want that the fault remains", result, err)
	}
}

// A helper that has lost its connection ends, so the next fault needs another one.
func TestHelpersAreReplaced(t *testing.T) {
	r, _, n := withPods(t, 2)
	r.Check = func(context.Context) error { n.breakConnections(); return nil }
	start(t, r)
	result := do(t, r)
	if injected, undone := n.counts(); injected != 2 || undone != 2 || len(result.Faults) != 2 || len(result.Violations) > 0 {
		t.Errorf("got %d faults of which %d were undone, and %+v, want 2 without violations", injected, undone, result)
	}
}

func TestWhatHelpersLackIsNotPossible(t *testing.T) {
	r, _, n := withPods(t, 1)
	n.lacks = map[string]string{nodefault.Drop: "no nftables"}
	start(t, r)
	for kind, want := range map[string]string{chaos.Freeze: "", chaos.APIServer: "it needs --machines hack:NAME", chaos.Loss: ": no nftables", chaos.Partition: ": no nftables"} {
		got, err := r.NotPossible(t.Context(), kinds(t, kind)[0])
		if err != nil || !strings.HasSuffix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: got %q, %v, want %q", kind, got, err, want)
		}
	}
}

func TestImageWithoutFaultsIsReported(t *testing.T) {
	r, pods, n := withPods(t, 1)
	n.oldImage = true
	err := r.Machines.Start(t.Context(), r.Subject)
	if err == nil || !strings.Contains(err.Error(), `with image any/chaos:1 has ended: Error no such program`) {
		t.Errorf("got %v, want the message of the helper", err)
	}
	if err := pods.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Before the first fault and before a helper is created, the API server is asked whether it would accept one.
func TestRefusedHelpersAreNotPossible(t *testing.T) {
	r, pods, _ := withPods(t, 1)
	restricted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "restricted-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	must.Succeed(t, r.Client.Create(t.Context(), restricted))
	for namespace, want := range map[string]string{
		restricted.Name: "refuses privileged pods (Pod Security): choose one that permits them with --machines-namespace",
		"missing":       `namespaces "missing" not found`,
		pods.Namespace:  "",
	} {
		r.Machines = &live.Pods{Client: r.Client, Namespace: namespace, Limit: time.Hour}
		got, err := r.NotPossible(t.Context(), kinds(t, chaos.Partition)[0])
		if err != nil || !strings.HasSuffix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: got %q, %v, want %q", namespace, got, err, want)
		}
	}
}
