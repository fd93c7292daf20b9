package live_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/live"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func kinds(t *testing.T, names ...string) []chaos.Kind {
	t.Helper()
	found, err := chaos.ParseKinds(names)
	must.Succeed(t, err)
	return found
}

func do(t *testing.T, r *live.Run) *chaos.Result {
	t.Helper()
	result, err := r.Do(t.Context())
	must.Succeed(t, err)
	return result
}

func TestEveryKindThatNeedsOnlyTheAPIIsMeasured(t *testing.T) {
	t.Parallel()
	w := newWorld(t, bugs{})
	names := []string{chaos.Pod, chaos.ForcePod, chaos.Two, chaos.All, chaos.Evict}
	r := w.run(len(names), names...)
	result := do(t, r)
	if len(result.Violations) > 0 || result.Interrupted || len(result.Summary) != len(names) {
		t.Errorf("got %+v, want one fault of each kind and no violation", result)
	}
	for i := range result.Faults {
		f := &result.Faults[i]
		if f.Elected == nil || f.Known == nil || f.Status == nil || f.Service == nil ||
			f.Settled == nil || f.Coordinator == "" {
			t.Errorf("got %+v, want all durations", f)
		}
		expect.Equalf(t, f.Victims[0], "ledger-2", "%s: first victim", f.Kind)
	}
}

func TestViolationsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		bugs bugs
		want string
	}{
		"the lowest leads":     {bugs{lowest: true}, chaos.Highest},
		"labels don't follow":  {bugs{noLabels: true}, chaos.Labels},
		"two lead":             {bugs{bothLead: true}, chaos.OneCoordinator},
		"there is no election": {bugs{noElection: true}, chaos.Failover},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // They wait for the timeout.
			w := newWorld(t, c.bugs)
			r := w.run(1, chaos.ForcePod)
			r.Timeout = 20 * time.Second
			result := do(t, r)
			if !slices.ContainsFunc(result.Violations, func(v chaos.Violation) bool { return v.Invariant == c.want }) {
				t.Errorf("got violations %v, want %s", result.Violations, c.want)
			}
		})
	}
}

// A group that settles after a fault can still break. The faults that follow can't show that: without a coordinator,
// they are refused.
func TestGroupThatBreaksAfterItHasSettledIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, bugs{})
	r := w.run(3, chaos.ForcePod)
	r.Pause, r.Timeout = 2*time.Second, 15*time.Second
	r.Check = func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.bugs.vacant = true
		return nil
	}
	result := do(t, r)
	if len(result.Faults) != 1 || len(result.Violations) != 1 ||
		result.Violations[0].String() != "fault 1 (force-pod): agents and status agree: the status shows no coordinator" {
		t.Errorf("got %+v, want that there is no coordinator after the first fault", result)
	}
}

func TestViolatedWorkloadIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, bugs{})
	r := w.run(2, chaos.ForcePod)
	r.Check = func(context.Context) error { return errors.New("the ledger has a gap") }
	result := do(t, r)
	if len(result.Violations) != 1 ||
		result.Violations[0].String() != "fault 1 (force-pod): the workload's invariant: the ledger has a gap" {
		t.Errorf("got %v, want the error of the check, once", result.Violations)
	}
}

// A held fault is reported and undone even if the user interrupts the run while it is injected, or while it lasts, and
// even if the API server is away at that time.
func TestInterruptedRunUndoesItsFault(t *testing.T) {
	for name, c := range map[string]struct{ during, away bool }{
		"during the injection": {during: true}, "after the injection": {}, "while the API server is away": {away: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, bugs{})
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}
			must.Succeed(w.t, w.Create(t.Context(), node))
			t.Cleanup(func() { must.Succeed(w.t, w.Delete(context.Background(), node)) })
			r := w.run(1, chaos.Cordon) // In this world, nothing is elected when a node is cordoned.
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			calls := 0
			r.Client = interceptor.NewClient(r.Client, interceptor.Funcs{
				Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch,
					options ...client.PatchOption,
				) error {
					if c.during {
						cancel()
					}
					defer cancel()
					if calls++; c.away && calls == 2 {
						return errors.New("connection refused")
					}
					return api.Patch(ctx, o, patch, options...)
				},
			})
			result, err := r.Do(ctx)
			if err != nil || !result.Interrupted || len(result.Faults) != 1 || len(result.Violations) != 0 {
				t.Errorf("got %+v, %v, want an interrupted run with one fault", result, err)
			}
			must.Succeed(w.t, w.Get(t.Context(), client.ObjectKeyFromObject(node), node))
			expect.Equalf(t, node.Spec.Unschedulable, false, "the node is cordoned")
		})
	}
}

func TestGroupMustSettleBeforeTheFirstFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t, bugs{unlabeled: true})
	r := w.run(1, chaos.ForcePod)
	r.Timeout = 2 * time.Second
	said := ""
	r.Printf = func(format string, args ...any) { said += fmt.Sprintf(format+"\n", args...) }
	result, err := r.Do(t.Context())
	if err == nil || len(result.Faults) != 0 {
		t.Errorf("got %+v, %v, want an error before the first fault", result, err)
	}
	expect.Containsf(t, said, "hasn't settled after 1s: pod ledger-", "report of what lacks")
	expect.Containsf(t, said, "&EndpointSlice{ObjectMeta:{ledger-coordinator", "report of what the API server has")
}

// Something else injects the faults. The group is judged by the invariants of a run.
func TestGroupIsObservedWhileOthersInjectFaults(t *testing.T) {
	for name, b := range map[string]bugs{
		"no bug": {}, "two lead": {bothLead: true}, "labels don't follow": {noLabels: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, b)
			r := w.run(0)
			r.Timeout = 10 * time.Second
			injected := make(chan error, 1)
			r.Printf = func(format string, args ...any) {
				if t.Logf(format, args...); strings.Contains(format, "observing for") {
					pod := &corev1.Pod{ObjectMeta: w.meta("ledger-2")}
					injected <- w.Delete(t.Context(), pod, client.GracePeriodSeconds(0))
				}
			}
			result, err := r.Observe(t.Context(), 3*time.Second)
			must.Succeed(t, err)
			must.Succeed(t, <-injected)
			if len(result.Faults) == 0 || result.Faults[0].Elected == nil || result.Faults[0].Status == nil {
				t.Errorf("got %+v, want a measured change of the coordinator", result)
			}
			if (len(result.Violations) == 0) != (b == bugs{}) {
				t.Errorf("got violations %v, want none only without a bug", result.Violations)
			}
		})
	}
}
