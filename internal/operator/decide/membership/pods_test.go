package membership

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestHasAgent(t *testing.T) {
	agent, other := corev1.Container{Name: v1.AgentContainer}, corev1.Container{Name: "application"}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want bool
	}{
		"no containers": {corev1.PodSpec{}, false},
		"a native sidecar": {
			corev1.PodSpec{InitContainers: []corev1.Container{agent}, Containers: []corev1.Container{other}}, true,
		},
		"one of several sidecars": {corev1.PodSpec{InitContainers: []corev1.Container{other, agent}}, true},
		"another init container":  {corev1.PodSpec{InitContainers: []corev1.Container{other}}, false},
		"an ordinary container":   {corev1.PodSpec{Containers: []corev1.Container{agent}}, false},
	} {
		expect.Equalf(t, HasAgent(&corev1.Pod{Spec: tc.spec}), tc.want, "%s", name)
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
		expect.EqualSlicesf(t, GroupsOf(pod), want, "%q", annotation)
		for _, group := range []string{"ledger", "mail"} {
			expect.Equalf(t, NamesGroup(pod, group), slices.Contains(want, group), "%q names %s", annotation, group)
		}
	}
	selected := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.AnnotationSelectedBy: "ledger,mail"}},
	}
	expect.EqualSlicesf(t, GroupsOf(selected), []string{"ledger", "mail"}, "selected pod (ledger and mail)")
	selected.Annotations[v1.AnnotationGroups] = "audit"
	if got := GroupsOf(selected); !slices.Equal(got, []string{"audit"}) || BySelection(selected) {
		t.Errorf("a selected pod that names its groups: got %q, want audit", got)
	}
	expect.Lenf(t, GroupsOf(&corev1.Pod{}), 0, "pod without annotations")
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
		group("listed",
			func(g *v1.ElectionGroup) { g.Status.Protocol.MemberList = &v1.MemberList{Members: members("ledger-1")} }),
		group("previous", func(g *v1.ElectionGroup) {
			g.Status.Protocol.MemberList = &v1.MemberList{Previous: &v1.PreviousList{Members: members("ledger-2")}}
		}),
		group("deleted", func(g *v1.ElectionGroup) {
			g.DeletionTimestamp, g.Spec.Members = new(metav1.Now()), members("ledger-0", "ledger-1", "")
		}),
		group("empty", func(*v1.ElectionGroup) {}),
	}
	for name, want := range map[string][]string{
		"ledger-0": {"declared", "selector"}, "ledger-1": {"listed", "selector"},
		"ledger-2": {"previous", "selector"}, "": {"selector"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "ledger"}}}
		expect.EqualSlicesf(t, SelectingGroups(groups, pod), want, "pod %q", name)
	}
	expect.Lenf(t, SelectingGroups(groups, &corev1.Pod{}), 0, "pod without name and labels")
}

func marshalYAML(t *testing.T, object any) string {
	t.Helper()
	data, err := yaml.Marshal(object)
	must.Succeed(t, err)
	return "\n" + string(data)
}

const labelsYAML = `  labels:
    conclave.dev/group: ledger
`

const ownerYAML = `  namespace: bank
  ownerReferences:
  - apiVersion: conclave.dev/v1
    blockOwnerDeletion: true
    controller: true
    kind: ElectionGroup
    name: ledger
    uid: 6f0c
`

// ownerReferences returns a reference to a controller.
func ownerReferences(apiVersion, kind, name, uid string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: new(
		true)}}
}

func TestOwnedByOther(t *testing.T) {
	f := newDeclaredFacts("a 10").addPods("a")
	mark := map[string]string{v1.LabelGroup: "ledger"}
	for name, c := range map[string]struct {
		metav1.ObjectMeta
		want bool
	}{
		"created by a user":  {metav1.ObjectMeta{}, true},
		"with another label": {metav1.ObjectMeta{Labels: map[string]string{"app": "ledger"}}, true},
		"of another group":   {metav1.ObjectMeta{Labels: map[string]string{v1.LabelGroup: "audit"}}, true},
		"of another group, with the label of this one": {
			metav1.ObjectMeta{Labels: mark, OwnerReferences: ownerReferences("conclave.dev/v1", "ElectionGroup", "audit", "a")},
			true,
		},
		"of another kind": {
			metav1.ObjectMeta{Labels: mark, OwnerReferences: ownerReferences("apps/v1", "Deployment", "ledger", "6f0c")}, true,
		},
		"of another API": {
			metav1.ObjectMeta{Labels: mark, OwnerReferences: ownerReferences("example.org/v1",
				"ElectionGroup", "ledger", "6f0c")}, true,
		},
		"that is only garbage-collected with the group": {
			metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "ElectionGroup", Name: "ledger", UID: "6f0c"}}},
			true,
		},
		"of this group": {ownedMeta(f.Group, "x"), false},
		"of this group without its label": {metav1.ObjectMeta{OwnerReferences: ownedMeta(f.Group,
			"x").OwnerReferences}, false},
		"of this group without its owner": {metav1.ObjectMeta{Labels: mark}, false},
		"from a backup": {
			metav1.ObjectMeta{Labels: mark, OwnerReferences: ownerReferences("conclave.dev/v1",
				"ElectionGroup", "ledger", "old")}, false,
		},
		"of an older version of the kind": {
			metav1.ObjectMeta{OwnerReferences: ownerReferences("conclave.dev/v1alpha1", "ElectionGroup", "ledger", "old")},
			false,
		},
	} {
		expect.Equalf(t, OwnedByOther(&c.ObjectMeta, f.Group), c.want, "object %s", name)
	}
}

func TestEndpointSliceConflict(t *testing.T) {
	f := newDeclaredFacts("a 10").addPods("a")
	withService(f)
	f.EndpointSlice = EndpointSlice(f.Group, nil, f.findPod("a"))
	expect.Equalf(t, f.step().WritesEndpointSlice, true, "it writes its own")
	f.EndpointSlice = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Name: "front-conclave", OwnerReferences: ownerReferences("conclave.dev/v1", "ElectionGroup", "audit", "a"),
	}}
	if p := f.step(); p.WritesEndpointSlice || p.Service == nil {
		t.Errorf("want a conflict and a Service; got %+v", p)
	} else {
		expectServiceProblem(t, &p, "ServiceConflict: EndpointSlice front-conclave has another owner: change "+
			"spec.service.name, or delete the EndpointSlice")
	}
}

// The list prefers a member as long as it remains, also after the operator has forgotten why.
func TestPreferredMember(t *testing.T) {
	f := newSelectorFacts(byAnnotation).addPods("a", "b", "c", "d")
	setPriorities(f, "a=5", "b=5", "c=5", "d=4")
	f.settle()
	expectList := func(what, want string) {
		t.Helper()
		expect.Equalf(t, formatMembers(f.settle().List.Members), want, "%s", what)
	}
	expectList("at first", "d 4, c 5, b 6, a 7")
	f.Preferred = "c"
	expectList("c is preferred", "d 4, c 7, b 5, a 6")
	f.Preferred = ""
	expectList("and remains so", "d 4, c 7, b 5, a 6")
	f.Preferred = "d"
	expectList("d has a lower value", "d 4, c 7, b 5, a 6")
	f.Preferred = "gone"
	expectList("an unknown pod is preferred", "d 4, c 7, b 5, a 6")
	f.addPod("e")
	setPriorities(f, "e=5")
	f.Preferred = ""
	expectList("a new pod does not take over", "d 4, c 8, b 6, a 7, e 5")
}

func TestEquallyPreferred(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*planner)
		want   string
	}{
		"equal values":                {func(*planner) {}, "a of b c"},
		"another preferred member":    {func(f *planner) { f.Preferred = "b"; f.settle() }, "b of a c"},
		"without a pod":               {func(f *planner) { f.deletePod("a") }, "a of "},
		"a pod that has failed":       {func(f *planner) { f.findPod("b").Status.Phase = corev1.PodFailed }, "a of c"},
		"a member with another value": {func(f *planner) { setPriorities(f, "a=2"); f.settle() }, "a of "},
		"two with the highest value":  {func(f *planner) { setPriorities(f, "b=2", "c=2"); f.settle() }, "b of c"},
		"an invalid value":            {func(f *planner) { setPriorities(f, "a=x") }, "a of "},
		"priority 0":                  {func(f *planner) { setPriorities(f, "a=0"); f.settle() }, "b of c"},
		"declared members": {func(f *planner) {
			f.Group.Spec.Selector, f.Group.Spec.PriorityFrom, f.Group.Spec.Members = nil, nil, parseMembers("a 1, b 2")
		}, " of "},
		"no list": {func(f *planner) { f.Group.Status.Protocol.MemberList = nil }, " of "},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSelectorFacts(byAnnotation).addPods("a", "b", "c")
			f.settle()
			c.change(f)
			first, others := EquallyPreferred(f.Facts)
			slices.Sort(others)
			expect.Equal(t, first+" of "+strings.Join(others, " "), c.want)
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
		expect.Equalf(t, Location(c.pod, c.node, c.spread), c.want, "spread over %s", c.spread)
	}
}

func TestLosesCoordinators(t *testing.T) {
	f := newSelectorFacts(byAnnotation).addPods("a")
	node := f.Nodes["node-a"]
	expect := func(what string, want bool) {
		t.Helper()
		expect.Equalf(t, LosesCoordinators(node, noon), want, "%s", what)
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
