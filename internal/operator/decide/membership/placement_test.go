package membership

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// The list prefers a member as long as it remains, also after the operator has forgotten why.
func TestPreferredMember(t *testing.T) {
	f := newSelectorFacts(byAnnotation).addPods("a", "b", "c", "d")
	setPriorityAnnotations(f, "a=5", "b=5", "c=5", "d=4")
	f.settle()
	expectList := func(what, want string) {
		t.Helper()
		if got := formatMembers(f.settle().List.Members); got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	expectList("at first", "d 4, c 5, b 6, a 7")
	f.Preferred = "c"
	expectList("c is preferred", "d 4, c 8, b 6, a 7")
	f.Preferred = ""
	expectList("and remains so", "d 4, c 8, b 6, a 7")
	f.Preferred = "d"
	expectList("d has a lower value", "d 4, c 8, b 6, a 7")
	f.Preferred = "gone"
	expectList("an unknown pod is preferred", "d 4, c 8, b 6, a 7")
	f.addPod("e")
	setPriorityAnnotations(f, "e=5")
	f.Preferred = ""
	expectList("a new pod does not take over", "d 4, c 8, b 6, a 7, e 5")
}

func TestEquallyPreferred(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"equal values":                {func(*Facts) {}, "a of b c"},
		"another preferred member":    {func(f *Facts) { f.Preferred = "b"; f.settle() }, "b of a c"},
		"without a pod":               {func(f *Facts) { f.deletePod("a") }, "a of "},
		"a pod that has failed":       {func(f *Facts) { f.findPod("b").Status.Phase = corev1.PodFailed }, "a of c"},
		"a member with another value": {func(f *Facts) { setPriorityAnnotations(f, "a=2"); f.settle() }, "a of "},
		"two with the highest value":  {func(f *Facts) { setPriorityAnnotations(f, "b=2", "c=2"); f.settle() }, "b of c"},
		"an invalid value":            {func(f *Facts) { setPriorityAnnotations(f, "a=x") }, "a of "},
		"priority 0":                  {func(f *Facts) { setPriorityAnnotations(f, "a=0"); f.settle() }, "b of c"},
		"declared members": {func(f *Facts) {
			f.Group.Spec.Selector, f.Group.Spec.PriorityFrom, f.Group.Spec.Members = nil, nil, parseMembers("a 1, b 2")
		}, " of "},
		"no list": {func(f *Facts) { f.Group.Status.Protocol.MemberList = nil }, " of "},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSelectorFacts(byAnnotation).addPods("a", "b", "c")
			f.settle()
			c.change(f)
			first, others := f.EquallyPreferred()
			slices.Sort(others)
			if got := first + " of " + strings.Join(others, " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestLocation(t *testing.T) {
	f := newSelectorFacts(byAnnotation).addPods("a")
	pod, node := f.findPod("a"), f.Nodes["node-a"]
	node.Labels = map[string]string{"topology.kubernetes.io/zone": "west"}
	for _, c := range []struct {
		pod    *corev1.Pod
		node   *corev1.Node
		spread v1.Spread
		want   string
	}{
		{pod, node, v1.SpreadNode, "node-a"},
		{pod, nil, v1.SpreadNode, "node-a"},
		{pod, node, v1.SpreadZone, "west"},
		{pod, nil, v1.SpreadZone, ""},
		{nil, node, v1.SpreadZone, ""},
		{&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, node, v1.SpreadZone, ""},
	} {
		if got := Location(c.pod, c.node, c.spread); got != c.want {
			t.Errorf("spread over %s: got %q, want %q", c.spread, got, c.want)
		}
	}
}

func TestLosesCoordinators(t *testing.T) {
	f := newSelectorFacts(byAnnotation).addPods("a")
	node := f.Nodes["node-a"]
	expect := func(what string, want bool) {
		t.Helper()
		if got := LosesCoordinators(node, noon); got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	expect("an ordinary node", false)
	node.Annotations = map[string]string{v1.AnnotationEvacuateUntil: noon.Add(time.Second).Format(time.RFC3339)}
	expect("an evacuated node", true)
	node.Annotations[v1.AnnotationEvacuateUntil] = noon.Format(time.RFC3339)
	expect("after the end", false)
	node.Spec.Unschedulable = true
	expect("a cordoned node", true)
	if LosesCoordinators(nil, noon) {
		t.Error("an unknown node: got true, want false")
	}
}
