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
	selected := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.AnnotationSelectedBy: "ledger,mail"}}}
	if got := GroupsOf(selected); !slices.Equal(got, []string{"ledger", "mail"}) {
		t.Errorf("a selected pod: got %q, want ledger and mail", got)
	}
	selected.Annotations[v1.AnnotationGroups] = "audit"
	if got := GroupsOf(selected); !slices.Equal(got, []string{"audit"}) || BySelection(selected) {
		t.Errorf("a selected pod that names its groups: got %q, want audit", got)
	}
	if groups := GroupsOf(&corev1.Pod{}); len(groups) > 0 {
		t.Errorf("a pod without annotations: got %q, want none", groups)
	}
}

func TestSelectingGroups(t *testing.T) {
	group := func(name string, change func(*v1.ElectionGroup)) v1.ElectionGroup {
		g := v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
		change(&g)
		return g
	}
	members := func(pods ...string) []v1.Member {
		var list []v1.Member
		for _, pod := range pods {
			list = append(list, v1.Member{Pod: pod, Priority: 1})
		}
		return list
	}
	groups := []v1.ElectionGroup{
		group("selector", func(g *v1.ElectionGroup) {
			g.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "ledger"}}
		}),
		group("declared", func(g *v1.ElectionGroup) { g.Spec.Members = members("ledger-0") }),
		group("listed", func(g *v1.ElectionGroup) { g.Status.Protocol.MemberList = &v1.MemberList{Members: members("ledger-1")} }),
		group("previous", func(g *v1.ElectionGroup) {
			g.Status.Protocol.MemberList = &v1.MemberList{Previous: &v1.PreviousList{Members: members("ledger-2")}}
		}),
		group("deleted", func(g *v1.ElectionGroup) {
			g.DeletionTimestamp, g.Spec.Members = new(metav1.Now()), members("ledger-0", "ledger-1", "")
		}),
		group("empty", func(*v1.ElectionGroup) {}),
	}
	for name, want := range map[string][]string{
		"ledger-0": {"declared", "selector"}, "ledger-1": {"listed", "selector"}, "ledger-2": {"previous", "selector"}, "": {"selector"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "ledger"}}}
		if got := SelectingGroups(groups, pod); !slices.Equal(got, want) {
			t.Errorf("pod %q: got %q, want %q", name, got, want)
		}
	}
	if got := SelectingGroups(groups, &corev1.Pod{}); len(got) > 0 {
		t.Errorf("a pod without name and labels: got %q, want none", got)
	}
}
