package cache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// Any user who may create pods can name thousands of groups in one. Each would take up memory
// in the index, and cause a reconcile whenever the pod changes.
func TestPodOfManyGroupsIsIndexedByFew(t *testing.T) {
	const many = 20000
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprintf("g%d", i)
	}
	annotated := &corev1.Pod{}
	annotated.Annotations = map[string]string{v1.AnnotationGroups: strings.Join(names, ",")}
	labeled := &corev1.Pod{}
	labeled.Annotations, labeled.Labels = map[string]string{v1.AnnotationGroups: "zebra"}, map[string]string{}
	held := &corev1.Pod{}
	held.Annotations = map[string]string{v1.AnnotationGroups: "zebra"}
	for _, name := range names {
		labeled.Labels[v1.RoleLabel(name)] = v1.RoleFollower
		held.Finalizers = append(held.Finalizers, v1.StopFinalizer(name))
	}
	for name, pod := range map[string]*corev1.Pod{"annotation": annotated, "labels": labeled, "finalizers": held} {
		stripped, err := stripPod(pod)
		must.Succeed(t, err)
		cached, _ := stripped.(*corev1.Pod)
		groups := GroupsInPod(cached)
		expect.AtMostf(t, len(groups), maxIndexedGroups, "%s: groups", name)
		if name != "annotation" && !slices.Contains(groups, "zebra") {
			t.Errorf("%s: got no group that the annotation names, want it beside the others", name)
		}
		if again := GroupsInPod(cached); !slices.Equal(again, groups) {
			t.Errorf("%s: got other groups the second time: an index must be stable", name)
		}
	}
}
