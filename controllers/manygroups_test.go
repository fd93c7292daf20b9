package controllers_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// A user has edited the record of a pod, so that it names thousands of groups. The operator
// doesn't ask the API server about each, while the pods of others wait.
func TestRecordOfManyGroupsIsNotFollowed(t *testing.T) {
	e := newEnv(t)
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
	e.eventually("the pod has its record", func() bool { return e.findPod("ledger-0").Annotations[v1.AnnotationSelectedBy] == "ledger" })
	expect.Equalf(t, o.countReads("/electiongroups/g0")+o.countReads("/electiongroups/g2999"), 0,
		"reads of groups that only the edited record names")
}
