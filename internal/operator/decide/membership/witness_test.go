package membership

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// newWitnessFacts returns the facts of a group with a managed witness, and its connected members. Nodes are the nodes
// of the members and of the witnesses, in the order of their names, as in "n1/west".
func newWitnessFacts(members, nodes, witnesses string) *planner {
	f := newDeclaredFacts(members)
	f.Group.Spec.Witness, f.MajorityLost = v1.WitnessManaged, false
	f.WitnessGroups = map[string]int{}
	places := strings.Fields(nodes)
	for _, m := range f.Group.Spec.Members {
		f.place(f.addPod(m.Pod), places[0])
		places = places[1:]
	}
	for i, place := range strings.Fields(witnesses) {
		pod := AsMember(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "conclave-system", Name: v1.WitnessPrefix + string(rune('0'+i)), UID: "w"},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.1.0." + string(rune('1'+i)),
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}, f.Group)
		f.place(pod, place)
		f.Witnesses = append(f.Witnesses, pod)
	}
	return f
}

func (f *planner) place(pod *corev1.Pod, place string) {
	node, zone, _ := strings.Cut(place, "/")
	pod.Spec.NodeName = node
	f.Nodes[node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node, Labels: map[string]string{corev1.LabelTopologyZone: zone},
	}}
}

// join connects the witnesses of the list, as the operator does.
func (f *planner) join() {
	for _, w := range f.Witnesses {
		if slices.Contains(WitnessesOf(f.MemberList()), w.Name) {
			f.Pods[w.Name], f.Agents[w.Name] = w, facts.Agent{Connected: true, Identity: "00000000000000a1"}
		}
	}
}

func TestWitnessIsFarFromBothMembers(t *testing.T) {
	for name, c := range map[string]struct {
		members, nodes, witnesses string
		change                    func(*planner)
		want                      string
	}{
		"another node":   {"a 1, b 2", "n1 n2", "n1 n2 n3", nil, "a 1, b 2, conclave-witness-2 0"},
		"another zone":   {"a 1, b 2", "n1/x n2/y", "n3/x n4/y n5/z", nil, "a 1, b 2, conclave-witness-2 0"},
		"one zone":       {"a 1, b 2", "n1/x n2/x", "n1/x n3/x", nil, "a 1, b 2, conclave-witness-1 0"},
		"two nodes":      {"a 1, b 2", "n1 n2", "n2", nil, "a 1, b 2, conclave-witness-0 0"},
		"none":           {"a 1, b 2", "n1 n2", "", nil, "a 1, b 2"},
		"three members":  {"a 1, b 2, c 3", "n1 n2 n3", "n4", nil, "a 1, b 2, c 3"},
		"one member":     {"a 1", "n1", "n1 n3 n2", nil, "a 1, conclave-witness-1 0, conclave-witness-2 0"},
		"one of two":     {"a 1", "n1", "n4", nil, "a 1"},
		"two zones":      {"a 1", "n1/x", "n2/y n3/y n4/z", nil, "a 1, conclave-witness-0 0, conclave-witness-2 0"},
		"an own witness": {"a 1, b 2, w 0", "n1 n2 n3", "n4", nil, "a 1, b 2, w 0"},
		"fewest groups":  {"a 1, b 2", "n1 n2", "n3 n4", load(5, 4), "a 1, b 2, conclave-witness-1 0"},
		"distance first": {"a 1, b 2", "n1 n2", "n1 n4", load(5, 9), "a 1, b 2, conclave-witness-1 0"},
		"full":           {"a 1, b 2", "n1 n2", "n3 n4", load(MaxWitnessGroups, 999), "a 1, b 2, conclave-witness-1 0"},
		"all full":       {"a 1, b 2", "n1 n2", "n3", load(MaxWitnessGroups), "a 1, b 2"},
		"too many":       {"a 1, b 2", "n1 n2", "n3", func(f *planner) { f.WitnessLimit = true }, "a 1, b 2"},
		"not asked for":  {"a 1, b 2", "n1 n2", "n3", func(f *planner) { f.Group.Spec.Witness = "" }, "a 1, b 2"},
		"not ready":      {"a 1, b 2", "n1 n2", "n3", unready, "a 1, b 2"},
		"no address":     {"a 1, b 2", "n1 n2", "n3", func(f *planner) { f.Witnesses[0].Status.PodIP = "" }, "a 1, b 2"},
	} {
		f := newWitnessFacts(c.members, c.nodes, c.witnesses)
		if c.change != nil {
			c.change(f)
		}
		expect.Equalf(t, formatList(f.step().List), "v1 Settled: "+c.want, "%s", name)
	}
}

func unready(f *planner) { f.Witnesses[0].Status.Conditions = nil }

func load(groups ...int) func(*planner) {
	return func(f *planner) {
		for i, n := range groups {
			f.WitnessGroups[f.Witnesses[i].Name] = n
		}
	}
}

// TestWitnessIsReplaced: another one comes if it is lost, and if it shares a node with a member and another one
// doesn't. Only then a plan asks for the others. Its document has the address and the UID of its pod.
func TestWitnessIsReplaced(t *testing.T) {
	const zero, one = "a 1, b 2, conclave-witness-0 0", "a 1, b 2, conclave-witness-1 0"
	for name, c := range map[string]struct {
		change func(*planner)
		want   string
		asks   bool
	}{
		"nothing changes":      {func(*planner) {}, zero, false},
		"not connected":        {func(f *planner) { f.disconnect("conclave-witness-0") }, zero, false},
		"lost":                 {lose, one, true},
		"lost, none is better": {func(f *planner) { lose(f); f.Witnesses = f.Witnesses[:1] }, zero, true},
		"lost, limit reached":  {func(f *planner) { lose(f); f.WitnessLimit = true }, one, true},
		"b moves to its node":  {func(f *planner) { f.place(f.Pods["b"], "n3") }, one, true},
		"b moves to both": {func(f *planner) {
			f.place(f.Pods["b"], "n3")
			f.place(f.Witnesses[1], "n3")
		}, zero, true},
		"b moves, a isn't there": {func(f *planner) { f.place(f.Pods["b"], "n3"); f.disconnect("a") }, zero, false},
		"the other has less":     {load(5, 1), zero, false},
		"c joins": {func(f *planner) {
			f.Group.Spec.Members = parseMembers("a 1, b 2, c 3")
			f.addPod("c")
		}, "a 1, b 2, c 3", false},
		"not asked for any more": {func(f *planner) { f.Group.Spec.Witness = "" }, "a 1, b 2", false},
	} {
		f := newWitnessFacts("a 1, b 2", "n1 n2", "n3 n4")
		f.step()
		f.join()
		expect.Equalf(t, formatMembers(f.settle().List.Members), zero, "%s: at first", name)
		f.reportVersion("a", 1)
		f.reportVersion("conclave-witness-0", 1)
		c.change(f)
		groups := f.WitnessGroups
		f.WitnessGroups = nil
		expect.Equalf(t, f.plan().NeedsWitnesses, c.asks, "%s: asks for the witnesses", name)
		f.WitnessGroups = groups
		p := f.plan()
		expect.Equalf(t, formatMembers(p.List.Members), c.want, "%s", name)
		f.Group.Spec.Service = &v1.CoordinatorService{Name: "ledger", Via: v1.ViaAgents}
		for _, pod := range Endpoints(f.Facts, "a") {
			expect.Equalf(t, pod.Name, "a", "%s: endpoint of the Service", name)
		}
		if got := p.Document.Group.Members; c.want == zero &&
			(got[2].Address != "10.1.0.1:7373" || got[2].UID != "w" || got[2].Priority != 0) {
			t.Errorf("%s: got member %+v in the document, want the address and UID of the witness", name, got[2])
		}
	}
}

func lose(f *planner) {
	f.disconnect("conclave-witness-0")
	f.WitnessLost = true
}

// TestWitnessesOfOneMember: its replacement has the votes of both. They stay in their places.
func TestWitnessesOfOneMember(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*planner)
		want   string
	}{
		"nothing changes": {func(*planner) {}, "a 1, w0 0, w1 0"},
		"one is lost":     {lose, "a 1, w2 0, w1 0"},
		"none is better":  {func(f *planner) { lose(f); f.Witnesses = f.Witnesses[:2] }, "a 1, w0 0, w1 0"},
		"a moves":         {func(f *planner) { f.place(f.Pods["a"], "n3") }, "a 1, w0 0, w2 0"},
		"b joins": {func(f *planner) {
			f.Group.Spec.Members = parseMembers("a 1, b 2")
			f.addPod("b")
		}, "a 1, b 2, w0 0"},
		"b replaces a": {func(f *planner) {
			f.Group.Spec.Members = parseMembers("b 2")
			f.addPod("b")
			f.disconnect("a")
		}, "b 2, w0 0, w1 0"},
	} {
		f := newWitnessFacts("a 1", "n1", "n2 n3 n4")
		f.step()
		f.join()
		f.settle()
		for _, member := range []string{"a", "conclave-witness-0", "conclave-witness-1"} {
			f.reportVersion(member, 1)
		}
		c.change(f)
		expect.Equalf(t, strings.ReplaceAll(formatMembers(f.plan().List.Members), v1.WitnessPrefix, "w"), c.want, "%s", name)
	}
}

// TestWitnessesComeLater: their votes are the majority of the next list, and the operator connects to them with it.
func TestWitnessesComeLater(t *testing.T) {
	f := newWitnessFacts("a 1", "n1", "n2 n3")
	f.WitnessLimit = true
	expect.Equalf(t, formatMembers(f.step().List.Members), "a 1", "members")
	f.WitnessLimit = false
	expect.Equalf(t, formatMembers(f.plan().List.Members), "a 1, conclave-witness-0 0, conclave-witness-1 0", "members")
}

// TestWitnessOfSelectedPods: the witness is none of the selected pods, and a pod of such a name isn't selected.
func TestWitnessOfSelectedPods(t *testing.T) {
	f := newWitnessFacts("", "", "n3")
	f.Group.Spec = newSelectorFacts(v1.PriorityFrom{Ordinal: v1.HighestFirst}).Group.Spec
	f.Group.Spec.Witness = v1.WitnessManaged
	f.addPods("ledger-0", "ledger-1", v1.WitnessPrefix+"7")
	f.FirstListComplete = true
	f.step()
	f.join()
	expect.Equalf(t, formatMembers(f.settle().List.Members), "ledger-0 1, ledger-1 2, conclave-witness-0 0", "members")
	f.deletePod("conclave-witness-0")
	f.Missing["conclave-witness-0"] = true
	expect.EqualSlicesf(t, WitnessesOf(f.plan().List), []string{"conclave-witness-0"}, "while its pod is replaced")
}
