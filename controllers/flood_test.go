package controllers_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// An agent that reports a thousand changes a second neither makes the operator write all
// the time nor delays the status of other groups.
func TestFloodOfReportsDoesNotDelayOtherGroups(t *testing.T) {
	need.Complete(t)
	e := newSequentialEnv(t)
	o := e.startOperator(func(o *operator) { o.debounce = -1 })
	e.createSettledGroup(o)
	others := []string{"one", "two", "three", "four"}
	pods := []string{"p-0", "p-1", "p-2"}
	for _, pod := range pods {
		e.pod(pod, others...)
	}
	for _, group := range others {
		e.createGroup(group, withShortWaits, pods...)
		e.awaitAdopted(group, 0, pods...)
	}
	e.awaitQuiet(o)

	stop, stopped := make(chan struct{}), make(chan struct{})
	flooding := e.agents["ledger-0"]
	go func() {
		defer close(stopped)
		for {
			flooding.ChangeReport("ledger", func(r *control.Report) {
				r.Term++
				r.Coordinator = []string{"ledger-0", "ledger-1"}[r.Term%2]
			})
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	before := 0
	count := func(group string) int {
		return len(slices.DeleteFunc(o.written()[before:], func(write string) bool {
			return !strings.HasSuffix(write, "/electiongroups/"+group+"/status")
		}))
	}
	// By then the agent has used its burst.
	want := count("ledger") + 20
	e.eventually("the status has been written twenty times", func() bool {
		report, _ := flooding.Report("ledger")
		return count("ledger") >= want && report.Term > 500
	})
	began := time.Now()
	before = len(o.written())
	for term := range int64(10) {
		for i, group := range others {
			e.elect(group, pods[(int(term)+i)%3], uint64(term+7))
			e.awaitCoordinator(group, pods[(int(term)+i)%3], term+7)
			e.awaitRole(pods[(int(term)+i)%3], group, v1.RoleCoordinator)
		}
	}
	// The agent alone changes no coordinator. A standby has a limit of its own, and may write what waits.
	most := 2 * (2 + int(time.Since(began).Seconds()))
	expect.AtMostf(t, count("ledger"), most, "writes of ledger's status")
	close(stop)
	<-stopped
	e.awaitQuiet(o)
	for _, group := range others {
		expect.AtMostf(t, count(group), 20, "%s: writes of the status for ten elections", group)
	}
}

// In Available mode, one agent can elect itself again and again. The operator doesn't write each of
// these elections, but the last one.
func TestElectionsWithoutEndAreLimited(t *testing.T) {
	e := newEnv(t)
	o := e.startOperator(func(o *operator) { o.debounce = -1 })
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	e.startLedger(func(group *v1.ElectionGroup) { group.Spec.Safety.Mode = v1.Available }, pods...)
	e.electAndAwait("ledger", "ledger-2", 7)
	e.awaitQuiet(o)

	written := func() float64 { return value(t, o.metrics, "conclave_operator_elections_total") }
	const elections = 45 // The operator accepts that many reports of an agent at once.
	began := time.Now()
	before := written()
	for term := uint64(8); term < 8+elections; term++ {
		reconciles := value(t, o.metrics, "conclave_operator_reconciles_total")
		e.agents["ledger-0"].ChangeReport("ledger", func(r *control.Report) { r.Coordinator, r.Term = "ledger-0", term })
		e.eventually("the operator has handled the report", func() bool {
			return value(t, o.metrics, "conclave_operator_reconciles_total") > reconciles
		})
	}
	e.awaitCoordinator("ledger", "ledger-0", 7+elections)
	e.awaitRole("ledger-0", "ledger", v1.RoleCoordinator)
	elapsed := int(time.Since(began).Seconds())
	expect.AtMostf(t, written()-before, float64(10+elapsed+1), "elections written in %d s", elapsed)
	expect.AtMostf(t, len(e.events()), 25+elapsed/60+1, "events in %d s", elapsed)
	if deferred := value(t, o.metrics, "conclave_operator_status_deferred_total"); deferred == 0 {
		t.Error("got no deferred status in the metric, want some")
	}
}

// A user has edited the record of a pod, so that it names thousands of groups. The operator
// doesn't ask the API server about each, while the pods of others wait.
func TestRecordOfManyGroupsIsNotFollowed(t *testing.T) {
	e := newSequentialEnv(t)
	o := e.startOperator()
	names := make([]string, 3000)
	for i := range names {
		names[i] = fmt.Sprintf("g%d", i)
	}
	e.podWith("hostile", []string{"audit"}, func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1.AnnotationSelectedBy: strings.Join(names, ",")}
	})
	e.podWith("ledger-0", []string{"ledger"}, func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1.AnnotationSelectedBy: ""}
		withApp("ledger")(pod)
	})
	e.createGroup("ledger", func(group *v1.ElectionGroup) {
		group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "ledger"}}
		group.Spec.PriorityFrom = &v1.PriorityFrom{Ordinal: v1.HighestFirst}
	})
	e.eventually("the pod has its record",
		func() bool { return e.findPod("ledger-0").Annotations[v1.AnnotationSelectedBy] == "ledger" })
	expect.Equalf(t, o.countReads("/electiongroups/g0")+o.countReads("/electiongroups/g2999"), 0,
		"reads of groups that only the edited record names")
}

// The cache has only a part of each object. What it leaves out remains when the operator writes the object.
func TestMetadataOfUsersRemains(t *testing.T) {
	e, o := newOperatedEnv(t)
	e.createSettledGroup(o)
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonHealthy)
	objects := []client.Object{
		&v1.ElectionGroup{ObjectMeta: e.metadata("ledger")},
		&corev1.Service{ObjectMeta: e.metadata("ledger-leader")},
		&discoveryv1.EndpointSlice{ObjectMeta: e.metadata("ledger-leader-conclave")},
	}
	update := func(change func(client.Object)) { e.update(objects, change) }
	update(func(object client.Object) {
		labels := map[string]string{"of": "user"}
		maps.Copy(labels, object.GetLabels())
		object.SetLabels(labels)
		object.SetAnnotations(map[string]string{"of": "user"})
		if service, ok := object.(*corev1.Service); ok {
			service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}
	})
	e.awaitQuiet(o)
	e.edit("ledger", func(group *v1.ElectionGroup) {
		group.Spec.Service.Ports[0].Port = 1234
		group.Spec.Timing.DrainMillis = new(int32(1234))
	})
	e.electAndAwait("ledger", "ledger-1", 8)
	e.awaitRoute("ledger-1")
	service := &corev1.Service{}
	e.eventually("the Service has the new port", func() bool {
		return e.client.Get(t.Context(), e.key("ledger-leader"), service) == nil && service.Spec.Ports[0].Port == 1234
	})
	e.eventually("the settings are published",
		func() bool { return *e.document("ledger").Group.Timing.DrainMillis == 1234 })
	expect.Equalf(t, service.Spec.SessionAffinity, corev1.ServiceAffinityClientIP,
		"session affinity (of the user)")
	update(func(object client.Object) {
		if object.GetLabels()["of"] != "user" || object.GetAnnotations()["of"] != "user" {
			t.Errorf("%T: got labels %v and annotations %v, want those of the user, too", object,
				object.GetLabels(), object.GetAnnotations())
		}
	})
}
