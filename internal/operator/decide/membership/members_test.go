package membership

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
)

var (
	byAnnotation = v1.PriorityFrom{Annotation: v1.AnnotationPriority}
	highest      = v1.PriorityFrom{Ordinal: v1.HighestFirst}
	lowest       = v1.PriorityFrom{Ordinal: v1.LowestFirst}
)

// setPriorities sets the priorities in pods' annotations, as in "a=5".
func setPriorities(f *planner, wishes ...string) {
	for _, wish := range wishes {
		name, value, _ := strings.Cut(wish, "=")
		f.findPod(name).Annotations[v1.AnnotationPriority] = value
	}
}

// prioritized returns the facts of a group with a selector. Its pods have the priorities of annotations, as in "a=5",
// or none.
func prioritized(pods ...string) *planner {
	f := newSelectorFacts(byAnnotation)
	for _, pod := range pods {
		name, value, set := strings.Cut(pod, "=")
		if f.addPod(name); set {
			setPriorities(f, name+"="+value)
		}
	}
	return f
}

func TestFirstList(t *testing.T) {
	cases := golden.Open(t, "testdata/firstlist.txt")
	for name, c := range map[string]struct {
		facts  *planner
		change func(*planner)
	}{
		"declared members in their order": {facts: newDeclaredFacts("c 30, a 10, b 20")},
		"declared members without pods":   {facts: newDeclaredFacts("a 10"), change: func(f *planner) { f.addPods("x") }},
		"the highest ordinal first": {
			facts: newSelectorFacts(highest).addPods("ledger-2", "ledger-0", "ledger-10", "ledger-1"),
		},
		"the lowest ordinal first": {
			facts: newSelectorFacts(lowest).addPods("ledger-2", "ledger-0", "ledger-10", "ledger-1"),
		},
		"ordinals above the maximum priority, highest first": {
			facts: newSelectorFacts(highest).addPods("ledger-20260601", "ledger-20260602", "ledger-7"),
		},
		"ordinals above the maximum priority, lowest first": {
			facts: newSelectorFacts(lowest).addPods("ledger-20260601", "ledger-20260602", "ledger-7"),
		},
		"the same ordinal in two workloads": {
			facts: newSelectorFacts(highest).addPods("x-0", "y-0", "x-1", "y-1"),
		},
		"names without an ordinal": {
			facts: newSelectorFacts(highest).addPods("ledger-0", "ledger-x7x", "web"),
		},
		"annotations":       {facts: prioritized("a=30", "b=0", "c=16383", "d")},
		"equal annotations": {facts: prioritized("a=5", "b=5", "c=5", "d=6", "e=0")},
		"equal annotations with the maximum priority":            {facts: prioritized("a=16383", "b=16383", "c=16382")},
		"an invalid annotation":                                  {facts: prioritized("a", "b=high", "c")},
		"an empty annotation":                                    {facts: prioritized("a=")},
		"an annotation above the maximum":                        {facts: prioritized("a=16384")},
		"a long annotation":                                      {facts: prioritized("a=" + strings.Repeat("9", 1000))},
		"an invalid annotation, and no other pod can be elected": {facts: prioritized("a=0", "b=high")},
		"no pod can be elected":                                  {facts: prioritized("a=0", "b=0")},
		"node labels": {
			facts: newSelectorFacts(v1.PriorityFrom{NodeLabel: "tier"}).addPods("a", "b", "c"),
			change: func(f *planner) {
				f.Nodes["node-a"].Labels = map[string]string{"tier": "7"}
				f.Nodes["node-b"].Labels = map[string]string{"tier": "0"}
			},
		},
		"an order of node labels": {
			facts: newSelectorFacts(v1.PriorityFrom{NodeLabel: "zone", Order: []v1.LabelValue{"west", "east"}}).addPods("a",
				"b", "c", "d"),
			change: func(f *planner) {
				f.Nodes["node-a"].Labels = map[string]string{"zone": "east"}
				f.Nodes["node-b"].Labels = map[string]string{"zone": "north"}
				f.Nodes["node-c"].Labels = map[string]string{"zone": "west"}
			},
		},
		"an order of annotations": {
			facts: newSelectorFacts(v1.PriorityFrom{Annotation: v1.AnnotationPriority, Order: []v1.LabelValue{"high", ""}}).
				addPods("a", "b", "c"),
			change: func(f *planner) { setPriorities(f, "a=high", "b=") },
		},
		"an invalid node label": {
			facts:  newSelectorFacts(v1.PriorityFrom{NodeLabel: "tier"}).addPods("a"),
			change: func(f *planner) { f.Nodes["node-a"].Labels = map[string]string{"tier": "-1"} },
		},
		"an unknown node": {
			facts:  newSelectorFacts(v1.PriorityFrom{NodeLabel: "tier"}).addPods("a", "b"),
			change: func(f *planner) { delete(f.Nodes, "node-a") },
		},
		"a name that members cannot have": {facts: prioritized(strings.Repeat("a", 64))},
		"no pods":                         {facts: newSelectorFacts(byAnnotation)},
		"pods that do not list the group": {
			facts: prioritized("a", "b"),
			change: func(f *planner) {
				f.findPod("a").Annotations = nil
				f.findPod("b").Annotations[v1.AnnotationGroups] = "ledgers, other"
			},
		},
		"pods with other labels, and finished pods": {
			facts: prioritized("a", "b", "c"),
			change: func(f *planner) {
				f.findPod("a").Labels = nil
				f.findPod("b").Status.Phase = corev1.PodSucceeded
				f.findPod("c").Annotations[v1.AnnotationGroups] = "other, ledger"
			},
		},
		"the first list waits for running agents": {
			facts:  prioritized("a", "b"),
			change: func(f *planner) { f.disconnect("a") },
		},
		"the first list does not wait any longer": {
			facts:  prioritized("a", "b"),
			change: func(f *planner) { f.disconnect("a"); f.FirstListComplete = true },
		},
		"the first list does not wait for a pending pod": {
			facts: prioritized("a", "b"),
			change: func(f *planner) {
				f.disconnect("a")
				f.findPod("a").Status.Phase = corev1.PodPending
			},
		},
		"the first list neither waits for pods that are being deleted nor contains them": {
			facts: prioritized("a", "b", "c"),
			change: func(f *planner) {
				f.disconnect("a")
				deleted(f.findPod("a"))
				deleted(f.findPod("c"))
			},
		},
		"no agents": {
			facts:  prioritized("a"),
			change: func(f *planner) { clear(f.Agents); f.FirstListComplete = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.facts)
			}
			p := c.facts.step()
			cases.Compare(t, name, formatList(p.List)+"\n"+formatProblem(p.Problem))
			expect.Equalf(t, p.Document == nil, p.List == nil, "no document, as no list")
		})
	}
}

// TestLaterLists begins each case with the list b 1, a 2, of which a is the older pod.
func TestLaterLists(t *testing.T) {
	cases := golden.Open(t, "testdata/laterlists.txt")
	for name, change := range map[string]func(*planner){
		"no change": func(*planner) {},
		"a pod joins, below members of the same rank":   func(f *planner) { f.addPods("c") },
		"a pod joins with a higher rank":                func(f *planner) { f.addPods("c"); setPriorities(f, "c=9") },
		"a pod with priority 0 joins":                   func(f *planner) { f.addPods("c"); setPriorities(f, "c=0") },
		"a pod without a connected agent does not join": func(f *planner) { f.addPod("c"); f.disconnect("c") },
		"the priority of a member is raised":            func(f *planner) { setPriorities(f, "b=9") },
		"the priority of a member is set to 0":          func(f *planner) { setPriorities(f, "a=0") },
		"an agent is disconnected":                      func(f *planner) { f.disconnect("a") },
		"a pod is being deleted":                        func(f *planner) { deleted(f.findPod("a")) },
		"one of two pods is being deleted, and the other one leads": func(f *planner) {
			deleted(f.findPod("a"))
			f.Group.Status.Coordinator = &v1.Coordinator{Pod: "b"}
		},
		"one of two pods is being deleted, and leads": func(f *planner) {
			deleted(f.findPod("a"))
			f.Group.Status.Coordinator = &v1.Coordinator{Pod: "a"}
		},
		"both pods are being deleted": func(f *planner) {
			deleted(f.findPod("a"))
			deleted(f.findPod("b"))
			f.Group.Status.Coordinator = &v1.Coordinator{Pod: "b"}
		},
		"one of two pods is being deleted, and the agent of the other one isn't connected": func(f *planner) {
			deleted(f.findPod("a"))
			f.Group.Status.Coordinator = &v1.Coordinator{Pod: "b"}
			f.disconnect("b")
		},
		"one of two pods is being deleted in mode Available": func(f *planner) {
			deleted(f.findPod("a"))
			f.Group.Status.Coordinator = &v1.Coordinator{Pod: "b"}
			f.Group.Spec.Safety.Mode = v1.Available
		},
		"a pod has just been deleted": func(f *planner) { f.deletePod("a") },
		"a pod is missing":            func(f *planner) { f.lose("a") },
		"a pod has just finished":     func(f *planner) { f.findPod("a").Status.Phase = corev1.PodFailed },
		"a pod has finished some time ago": func(f *planner) {
			f.findPod("a").Status.Phase = corev1.PodFailed
			f.Missing["a"] = true
		},
		"a pod is no longer selected":                func(f *planner) { f.findPod("a").Labels = nil },
		"a pod no longer lists the group":            func(f *planner) { f.findPod("a").Annotations = nil },
		"a pod is recreated with its name":           func(f *planner) { f.deletePod("a"); f.addPods("a") },
		"a pod is replaced by one with another name": func(f *planner) { f.lose("a"); f.addPods("c") },
		"all pods are missing":                       func(f *planner) { f.lose("a", "b") },
		"all pods are missing, and a new one is not connected yet": func(f *planner) {
			f.lose("a", "b")
			f.addPods("c").disconnect("c")
		},
		"all pods are replaced": func(f *planner) { f.lose("a", "b"); f.addPods("c", "d") },
		"a member with an invalid annotation remains, and another pod joins": func(f *planner) {
			f.addPods("c")
			setPriorities(f, "a=x", "c=9")
		},
		"a member with an invalid annotation does not move with the one below it": func(f *planner) {
			setPriorities(f, "a=x", "b=9")
		},
		"a member with an invalid annotation is no longer selected": func(f *planner) {
			setPriorities(f, "a=x")
			f.findPod("a").Labels = nil
		},
		"a pod with an invalid annotation does not join, and another one does": func(f *planner) {
			f.addPods("c", "d")
			setPriorities(f, "c=x", "d=9")
		},
		"a pod with an invalid annotation, and no member can be elected": func(f *planner) {
			f.addPods("c")
			setPriorities(f, "a=0", "b=0", "c=x")
		},
		"a member with priority 0 gets an invalid annotation": func(f *planner) {
			setPriorities(f, "a=0")
			f.settle()
			setPriorities(f, "a=x")
		},
		"no member can be elected": func(f *planner) { setPriorities(f, "a=0", "b=0") },
		"the selector is replaced by declared members": func(f *planner) {
			f.Group.Spec = v1.ElectionGroupSpec{Members: parseMembers("x 1, a 7")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := prioritized("a", "b")
			expect.Equalf(t, formatList(f.settle().List), "v1 Settled: b 1, a 2", "before")
			change(f)
			p := f.settle()
			got, _, _ := strings.Cut(formatList(p.List), "; after")
			cases.Compare(t, name, got+"\n"+formatProblem(p.Problem))
		})
	}
}

// A group that has members goes on, however many others there are.
func TestTooManyGroups(t *testing.T) {
	f := newSelectorFacts(highest).addPods("ledger-0")
	f.GroupsMax = 2
	p := f.settle()
	expect.Equalf(t, formatProblem(p.Problem), "TooManyGroups: The operator serves 2 groups in this namespace, "+
		"its maximum: delete one that isn't needed", "problem")
	expect.Equalf(t, p.List == nil, true, "no list")
	f.GroupsMax = 0
	expect.Equalf(t, f.settle().List != nil, true, "list after another group was deleted")
	f.GroupsMax = 2
	p = f.addPods("ledger-1").settle()
	expect.Equalf(t, formatProblem(p.Problem), formatProblem(nil), "problem of a group with members")
}

func TestTooManyMembers(t *testing.T) {
	f := newSelectorFacts(highest)
	for i := range v1.MaxMembers {
		f.addPod(fmt.Sprint("ledger-", i))
	}
	if p := f.settle(); p.Problem != nil || len(p.List.Members) != v1.MaxMembers {
		t.Fatalf("%d members: got problem %v", v1.MaxMembers, p.Problem)
	}
	f.addPods("ledger-100")
	p := f.settle()
	expect.Equalf(t, formatProblem(p.Problem),
		"TooManyMembers: The selector matches 101 pods with agents, but a group has at most 100 members: narrow the selector",
		"problem")
	expect.Equalf(t, p.List.Version, 1, "version")
	f.deletePod("ledger-50")
	if p := f.settle(); p.Problem != nil && p.List.Version != 1 {
		t.Error("got a new list before the member has departed")
	}
	f.Missing["ledger-50"] = true
	if p := f.settle(); p.Problem != nil || p.List.Version != 2 || len(p.List.Members) != v1.MaxMembers {
		t.Errorf("a pod replaces a departed member: got problem %v", p.Problem)
	}
}

// TestUnknownNodes tests that a member whose node is unknown, or that has no pod, keeps its place among the others.
func TestUnknownNodes(t *testing.T) {
	f := newSelectorFacts(v1.PriorityFrom{NodeLabel: "tier"}).addPods("a", "b", "c", "d")
	for name, tier := range map[string]string{"a": "5", "b": "5", "c": "7", "d": "0"} {
		f.Nodes["node-"+name].Labels = map[string]string{"tier": tier}
	}
	const want = "v1 Settled: d 0, b 5, a 6, c 7"
	expect.Equalf(t, formatList(f.settle().List), want, "list")
	for _, name := range []string{"a", "b", "c", "d"} {
		node := f.Nodes["node-"+name]
		delete(f.Nodes, "node-"+name)
		expect.Equalf(t, formatList(f.settle().List), want, "without the node of %s", name)
		f.Nodes["node-"+name] = node
	}
	clear(f.Nodes)
	expect.Equalf(t, formatList(f.settle().List), want, "without nodes")
}
