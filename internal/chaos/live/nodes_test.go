package live_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/live"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// nodes plays the parts of the kubelets and the machines of a world.
type nodes struct {
	w *world
	// injected is called after each fault.
	injected func()
	// killed are the restarts of containers that are under way.
	killed sync.WaitGroup

	mu    sync.Mutex
	calls []string
}

// withNodes returns a run that freezes pods.
func withNodes(t *testing.T, faults int) (*live.Run, *nodes) {
	t.Helper()
	t.Parallel()
	n := &nodes{w: newWorld(t, bugs{}), injected: func() {}}
	t.Cleanup(n.killed.Wait)
	r := n.w.run(faults, chaos.Freeze)
	r.Machines = live.Calls{Inject: n.inject, Undo: n.undo}
	return r, n
}

// inject prevents the first container's pod from leading until that is undone, or until the kubelet has restarted a
// container that was killed.
func (n *nodes) inject(kind string, containers []string) error {
	n.called(kind + " " + strings.Join(containers, " "))
	n.freeze("containerd://" + containers[0])
	n.injected()
	if kind == chaos.KillApp {
		n.killed.Go(func() { n.restart("containerd://" + containers[0]) })
	}
	return nil
}

func (n *nodes) undo(string, []string) error {
	n.called("undo")
	n.freeze("")
	return nil
}

func (n *nodes) called(call string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, call)
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

func TestFrozenCoordinatorIsReplaced(t *testing.T) {
	r, n := withNodes(t, 2)
	result := do(t, r)
	if len(result.Violations) > 0 || len(result.Faults) != 2 || result.Faults[1].Coordinator != "ledger-1" ||
		result.Faults[1].Settled == nil {
		t.Errorf("got %+v, want two failovers to ledger-1 without violations", result)
	}
	first := strings.Fields(n.calls[0])
	if len(n.calls) != 4 || len(first) != 3 || !strings.HasPrefix(first[1], "ledger-2-application-") ||
		n.calls[3] != "undo" {
		t.Errorf("got calls %q, want two that freeze both containers of ledger-2, each undone", n.calls)
	}
}

// The kubelet restarts a container later and later. The command doesn't wait for that.
func TestPodWhoseContainerHasEndedTwiceIsReplaced(t *testing.T) {
	r, n := withNodes(t, 5)
	r.Kinds = kinds(t, chaos.KillApp)
	result := do(t, r)
	if len(result.Violations) > 0 || len(result.Faults) != 5 || result.Faults[4].Settled == nil {
		t.Errorf("got %+v, want five failovers without violations", result)
	}
	expect.Equalf(t, n.w.started, members+2,
		"pods (the coordinator's is replaced before the third and the fifth fault)")
}

func TestInterruptedRunUndoesTheFaultOnAMachine(t *testing.T) {
	r, n := withNodes(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n.injected = cancel
	if result, err := r.Do(ctx); err != nil || !result.Interrupted {
		t.Errorf("got %+v, %v, want an interrupted run", result, err)
	}
	if len(n.calls) != 2 || n.calls[1] != "undo" {
		t.Errorf("got calls %q, want a fault that is undone", n.calls)
	}
}
