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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

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
	e.createGroup("ledger", withSelector("ledger"))
	e.eventually("the pod has its record",
		func() bool { return e.findPod("ledger-0").Annotations[v1.AnnotationSelectedBy] == "ledger" })
	expect.Equalf(t, o.countReads("/electiongroups/g0")+o.countReads("/electiongroups/g2999"), 0,
		"reads of groups that only the edited record names")
}

// The agents of a namespace report as many elections as they can. All writes that follow are limited together, also
// those of two replicas.
func TestWritesOfANamespaceAreLimited(t *testing.T) {
	const groups, attack = 12, 8 * time.Second
	e := newSequentialEnv(t)
	names := make([]string, groups)
	for i := range names {
		names[i] = fmt.Sprintf("g%d", i)
	}
	pods := []string{"hostile-0", "hostile-1", "hostile-2"}
	for _, pod := range pods {
		e.pod(pod, names...)
	}
	leader := e.startOperator()
	standby := e.startOperator(func(o *operator) { o.leadership.Set(false) })
	e.eventually("the standby is connected to the agents",
		func() bool { return value(t, standby.metrics, "conclave_operator_streams_connected") == 3 })
	for _, name := range names {
		e.createGroup(name, withService, pods...)
		e.awaitAdopted(name, 0, pods...)
	}
	e.awaitQuiet(leader)
	written := func() int { return len(leader.written()) + len(standby.written()) }
	before, begin, term := written(), time.Now(), uint64(7)
	for ticks := time.Tick(100 * time.Millisecond); time.Since(begin) < attack; <-ticks {
		term++
		for _, name := range names {
			e.elect(name, pods[term%3], term)
		}
	}
	got, most := written()-before, 100+int(25*time.Since(begin).Seconds())
	t.Logf("%d writes because of %d elections in %d groups", got, term-7, groups)
	// A status that has its turn brings up to five other writes, for which the next one waits.
	expect.AtMostf(t, got, most+5*groups, "writes of both replicas because of the attack")
	expect.AtLeastf(t, got, 100, "writes of both replicas, of which the first hundred don't wait")
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
	// Others may own an object, too, for example so that it is deleted with an application.
	application := &corev1.ConfigMap{ObjectMeta: e.metadata("application")}
	e.createAsUser(application)
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: application.Name, UID: application.UID}
	update := func(change func(client.Object)) { e.update(objects, change) }
	before := len(o.written())
	update(func(object client.Object) {
		labels := map[string]string{"of": "user"}
		maps.Copy(labels, object.GetLabels())
		object.SetLabels(labels)
		object.SetAnnotations(map[string]string{"of": "user"})
		object.SetOwnerReferences(append(object.GetOwnerReferences(), owner))
		if service, ok := object.(*corev1.Service); ok {
			service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}
	})
	e.awaitQuiet(o)
	expect.Lenf(t, kinds(o.written()[before:]), 0, "writes because of what users add")
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
		if object.GetLabels()["of"] != "user" || object.GetAnnotations()["of"] != "user" ||
			!slices.Contains(object.GetOwnerReferences(), owner) {
			t.Errorf("%T: got labels %v, annotations %v and owners %v, want those of the user, too", object,
				object.GetLabels(), object.GetAnnotations(), object.GetOwnerReferences())
		}
	})
}
