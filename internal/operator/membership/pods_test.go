package membership

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

func TestHasAgent(t *testing.T) {
	agent, other := corev1.Container{Name: v1.AgentContainer}, corev1.Container{Name: "application"}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want bool
	}{
		"no containers":           {corev1.PodSpec{}, false},
		"a native sidecar":        {corev1.PodSpec{InitContainers: []corev1.Container{agent}, Containers: []corev1.Container{other}}, true},
		"one of several sidecars": {corev1.PodSpec{InitContainers: []corev1.Container{other, agent}}, true},
		"another init container":  {corev1.PodSpec{InitContainers: []corev1.Container{other}}, false},
		"an ordinary container":   {corev1.PodSpec{Containers: []corev1.Container{agent}}, false},
	} {
		if got := HasAgent(&corev1.Pod{Spec: tc.spec}); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}

func TestGroupsOf(t *testing.T) {
	for annotation, want := range map[string][]string{
		"":                {},
		" , ":             {},
		"ledger":          {"ledger"},
		" ledger ,, mail": {"ledger", "mail"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.AnnotationGroups: annotation}}}
		if got := GroupsOf(pod); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", annotation, got, want)
		}
		for _, group := range []string{"ledger", "mail"} {
			if got := NamesGroup(pod, group); got != slices.Contains(want, group) {
				t.Errorf("%q names %s: got %t, want %t", annotation, group, got, !got)
			}
		}
	}
	if groups := GroupsOf(&corev1.Pod{}); len(groups) > 0 {
		t.Errorf("a pod without annotations: got %q, want none", groups)
	}
}
