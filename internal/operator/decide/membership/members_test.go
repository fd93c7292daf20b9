package membership

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

var (
	byAnnotation = v1.PriorityFrom{Annotation: v1.AnnotationPriority}
	highest      = v1.PriorityFrom{Ordinal: v1.HighestFirst}
)

// setPriorityAnnotations sets the priorities in pods' annotations, as in "a=5".
func setPriorityAnnotations(f *Facts, wishes ...string) {
	for _, wish := range wishes {
		name, value, _ := strings.Cut(wish, "=")
		f.findPod(name).Annotations[v1.AnnotationPriority] = value
	}
}

func TestFirstList(t *testing.T) {
	for name, c := range map[string]struct {
		facts         *Facts
		change        func(*Facts)
		list, problem string
	}{
		"declared members in their order": {
			facts: newDeclaredFacts("c 30, a 10, b 20"), list: "v1 Settled: c 30, a 10, b 20",
		},
		"declared members without pods": {
			facts: newDeclaredFacts("a 10"), change: func(f *Facts) { f.addPods("x") }, list: "v1 Settled: a 10",
		},
		"the highest ordinal first": {
			facts: newSelectorFacts(highest).addPods("ledger-2", "ledger-0", "ledger-10", "ledger-1"),
			list:  "v1 Settled: ledger-0 1, ledger-1 2, ledger-2 3, ledger-10 11",
		},
		"the lowest ordinal first": {
			facts: newSelectorFacts(v1.PriorityFrom{Ordinal: v1.LowestFirst}).addPods("ledger-2", "ledger-0", "ledger-10", "ledger-1"),
			list:  "v1 Settled: ledger-10 16373, ledger-2 16381, ledger-1 16382, ledger-0 16383",
		},
		"ordinals above the maximum priority, highest first": {
			facts: newSelectorFacts(highest).addPods("ledger-20260601", "ledger-20260602", "ledger-7"),
			list:  "v1 Settled: ledger-7 8, ledger-20260601 16382, ledger-20260602 16383",
		},
		"ordinals above the maximum priority, lowest first": {
			facts: newSelectorFacts(v1.PriorityFrom{Ordinal: v1.LowestFirst}).addPods("ledger-20260601", "ledger-20260602", "ledger-7"),
			list:  "v1 Settled: ledger-20260602 1, ledger-20260601 2, ledger-7 16376",
		},
		"the same ordinal in two workloads": {
			facts: newSelectorFacts(highest).addPods("x-0", "y-0", "x-1", "y-1"),
			list:  "v1 Settled: y-0 1, x-0 2, y-1 3, x-1 4",
		},
		"names without an ordinal": {
			facts:   newSelectorFacts(highest).addPods("ledger-0", "ledger-x7x", "web"),
			list:    "v1 Settled: ledger-0 1",
			problem: "InvalidMembers: Pod ledger-x7x: the name must end in a hyphen and a number, as in a StatefulSet, because priorityFrom is ordinal; 1 more pod is invalid",
		},
		"annotations": {
			facts:  newSelectorFacts(byAnnotation).addPods("a", "b", "c", "d"),
			change: func(f *Facts) { setPriorityAnnotations(f, "a=30", "b=0", "c=16383") },
			list:   "v1 Settled: b 0, d 1, a 30, c 16383",
		},
		"equal annotations": {
			facts:  newSelectorFacts(byAnnotation).addPods("a", "b", "c", "d", "e"),
			change: func(f *Facts) { setPriorityAnnotations(f, "a=5", "b=5", "c=5", "d=6", "e=0") },
			list:   "v1 Settled: e 0, c 5, b 6, a 7, d 8",
		},
		"equal annotations with the maximum priority": {
			facts:  newSelectorFacts(byAnnotation).addPods("a", "b", "c"),
			change: func(f *Facts) { setPriorityAnnotations(f, "a=16383", "b=16383", "c=16382") },
			list:   "v1 Settled: c 16381, b 16382, a 16383",
		},
		"an invalid annotation": {
			facts:   newSelectorFacts(byAnnotation).addPods("a", "b", "c"),
			change:  func(f *Facts) { setPriorityAnnotations(f, "b=high") },
			list:    "v1 Settled: c 1, a 2",
			problem: `InvalidMembers: Pod b: annotation conclave.dev/priority must be an integer from 0 to 16383, got "high"`,
		},
		"an empty annotation": {
			facts:   newSelectorFacts(byAnnotation).addPods("a"),
			change:  func(f *Facts) { setPriorityAnnotations(f, "a=") },
			problem: `InvalidMembers: Pod a: annotation conclave.dev/priority must be an integer from 0 to 16383, got ""`,
		},
		"an annotation above the maximum": {
			facts:   newSelectorFacts(byAnnotation).addPods("a"),
			change:  func(f *Facts) { setPriorityAnnotations(f, "a=16384") },
			problem: `InvalidMembers: Pod a: annotation conclave.dev/priority must be an integer from 0 to 16383, got "16384"`,
		},
		"a long annotation": {
			facts:  newSelectorFacts(byAnnotation).addPods("a"),
			change: func(f *Facts) { setPriorityAnnotations(f, "a="+strings.Repeat("9", 1000)) },
			problem: `InvalidMembers: Pod a: annotation conclave.dev/priority must be an integer from 0 to 16383, got "` +
				strings.Repeat("9", 32) + `..."`,
		},
		"an invalid annotation, and no other pod can be elected": {
			facts:   newSelectorFacts(byAnnotation).addPods("a", "b"),
			change:  func(f *Facts) { setPriorityAnnotations(f, "a=0", "b=high") },
			problem: `InvalidMembers: Pod b: annotation conclave.dev/priority must be an integer from 0 to 16383, got "high"`,
		},
		"no pod can be elected": {
			facts:   newSelectorFacts(byAnnotation).addPods("a", "b"),
			change:  func(f *Facts) { setPriorityAnnotations(f, "a=0", "b=0") },
			problem: "InvalidMembers: Every pod has priority 0: at least one pod must have a priority above 0",
		},
		"node labels": {
			facts: newSelectorFacts(v1.PriorityFrom{NodeLabel: "tier"}).addPods("a", "b", "c"),
			change: func(f *Facts) {
				f.Nodes["node-a"].Labels = map[string]string{"tier": "7"}
				f.Nodes["node-b"].Labels = map[string]string{"tier": "0"}
			},
			list: "v1 Settled: b 0, c 1, a 7",
		},
		"an order of node labels": {
			facts: newSelectorFacts(v1.PriorityFrom{NodeLabel: "zone", Order: []v1.LabelValue{"west", "east"}}).addPods("a", "b", "c", "d"),
			change: func(f *Facts) {
				f.Nodes["node-a"].Labels = map[string]string{"zone": "east"}
				f.Nodes["node-b"].Labels = map[string]string{"zone": "north"}
				f.Nodes["node-c"].Labels = map[string]string{"zone": "west"}
			},
			list: "v1 Settled: d 1, b 2, a 3, c 4",
		},
		"an order of annotations": {
			facts:  newSelectorFacts(v1.PriorityFrom{Annotation: v1.AnnotationPriority, Order: []v1.LabelValue{"high", ""}}).addPods("a", "b", "c"),
			change: func(f *Facts) { setPriorityAnnotations(f, "a=high", "b=") },
			list:   "v1 Settled: c 1, b 2, a 3",
		},
		"an invalid node label": {
			facts:   newSelectorFacts(v1.PriorityFrom{NodeLabel: "tier"}).addPods("a"),
			change:  func(f *Facts) { f.Nodes["node-a"].Labels = map[string]string{"tier": "-1"} },
			problem: `InvalidMembers: Pod a: label tier of node node-a must be an integer from 0 to 16383, got "-1"`,
		},
		"an unknown node": {
			facts:  newSelectorFacts(v1.PriorityFrom{NodeLabel: "tier"}).addPods("a", "b"),
			change: func(f *Facts) { delete(f.Nodes, "node-a") },
			list:   "v1 Settled: b 1",
		},
		"a name that members cannot have": {
			facts:   newSelectorFacts(byAnnotation).addPods(strings.Repeat("a", 64)),
			problem: "InvalidMembers: Pod " + strings.Repeat("a", 64) + ": each part of a member's name between dots must have at most 63 characters",
		},
		"no pods": {
			facts:   newSelectorFacts(byAnnotation),
			problem: "NoMembers: The selector matches no pods in namespace bank: check the labels, and whether the pods exist",
		},
		"pods that do not list the group": {
			facts: newSelectorFacts(byAnnotation).addPods("a", "b"),
			change: func(f *Facts) {
				f.findPod("a").Annotations = nil
				f.findPod("b").Annotations[v1.AnnotationGroups] = "ledgers, other"
			},
			problem: "NoMembers: The selector matches a and b, but none is in the group: add the label conclave.dev/agent: enabled to the pod template, " +
				"and recreate the pods; a template with the annotation conclave.dev/groups must list the group there",
		},
		"pods with other labels, and finished pods": {
			facts: newSelectorFacts(byAnnotation).addPods("a", "b", "c"),
			change: func(f *Facts) {
				f.findPod("a").Labels = nil
				f.findPod("b").Status.Phase = corev1.PodSucceeded
				f.findPod("c").Annotations[v1.AnnotationGroups] = "other, ledger"
			},
			list: "v1 Settled: c 1",
		},
		"the first list waits for running agents": {
			facts: newSelectorFacts(byAnnotation).addPods("a", "b"), change: func(f *Facts) { delete(f.Connected, f.findPod("a").UID) },
			list: "none",
		},
		"the first list does not wait any longer": {
			facts: newSelectorFacts(byAnnotation).addPods("a", "b"), change: func(f *Facts) { delete(f.Connected, f.findPod("a").UID); f.FirstListComplete = true },
			list: "v1 Settled: b 1",
		},
		"the first list does not wait for a pending pod": {
			facts: newSelectorFacts(byAnnotation).addPods("a", "b"),
			change: func(f *Facts) {
				delete(f.Connected, f.findPod("a").UID)
				f.findPod("a").Status.Phase = corev1.PodPending
			},
			list: "v1 Settled: b 1",
		},
		"the first list neither waits for pods that are being deleted nor contains them": {
			facts: newSelectorFacts(byAnnotation).addPods("a", "b", "c"),
			change: func(f *Facts) {
				delete(f.Connected, f.findPod("a").UID)
				f.findPod("a").DeletionTimestamp = new(metav1.NewTime(noon))
				f.findPod("c").DeletionTimestamp = new(metav1.NewTime(noon))
			},
			list: "v1 Settled: b 1",
		},
		"no agents": {
			facts: newSelectorFacts(byAnnotation).addPods("a"), change: func(f *Facts) { clear(f.Connected); f.FirstListComplete = true }, list: "none",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.facts)
			}
			p := c.facts.step()
			c.list = cmp.Or(c.list, "none")
			expect(t, "list", formatList(p.List), c.list)
			expect(t, "problem", formatProblem(p.Problem), c.problem)
			if (p.Document == nil) != (p.List == nil) {
				t.Errorf("got list %s, but document %v", formatList(p.List), p.Document)
			}
		})
	}
}

// TestLaterLists begins each case with the list b 1, a 2, of which a is the older pod.
func TestLaterLists(t *testing.T) {
	for name, c := range map[string]struct {
		change        func(*Facts)
		list, problem string
	}{
		"no change": {change: func(*Facts) {}, list: "v1 Settled: b 1, a 2"},
		"a pod joins, below members of the same rank":   {change: func(f *Facts) { f.addPods("c") }, list: "v2 Settled: b 2, a 3, c 1"},
		"a pod joins with a higher rank":                {change: func(f *Facts) { f.addPods("c"); setPriorityAnnotations(f, "c=9") }, list: "v2 Settled: b 1, a 2, c 9"},
		"a pod with priority 0 joins":                   {change: func(f *Facts) { f.addPods("c"); setPriorityAnnotations(f, "c=0") }, list: "v2 Settled: b 1, a 2, c 0"},
		"a pod without a connected agent does not join": {change: func(f *Facts) { delete(f.Connected, f.addPod("c").UID) }, list: "v1 Settled: b 1, a 2"},
		"the priority of a member is raised":            {change: func(f *Facts) { setPriorityAnnotations(f, "b=9") }, list: "v2 Settled: b 9, a 2"},
		"the priority of a member is set to 0":          {change: func(f *Facts) { setPriorityAnnotations(f, "a=0") }, list: "v2 Settled: b 1, a 0"},
		"an agent is disconnected":                      {change: func(f *Facts) { delete(f.Connected, f.findPod("a").UID) }, list: "v1 Settled: b 1, a 2"},
		"a pod is being deleted": {
			change: func(f *Facts) { f.findPod("a").DeletionTimestamp = new(metav1.NewTime(noon)) }, list: "v1 Settled: b 1, a 2",
		},
		"a pod has just been deleted": {change: func(f *Facts) { f.deletePod("a") }, list: "v1 Settled: b 1, a 2"},
		"a pod is missing":            {change: func(f *Facts) { f.deletePod("a"); f.Missing["a"] = true }, list: "v2 Settled: b 1"},
		"a pod has just finished":     {change: func(f *Facts) { f.findPod("a").Status.Phase = corev1.PodFailed }, list: "v1 Settled: b 1, a 2"},
		"a pod has finished some time ago": {
			change: func(f *Facts) { f.findPod("a").Status.Phase = corev1.PodFailed; f.Missing["a"] = true }, list: "v2 Settled: b 1",
		},
		"a pod is no longer selected":      {change: func(f *Facts) { f.findPod("a").Labels = nil }, list: "v2 Settled: b 1"},
		"a pod no longer lists the group":  {change: func(f *Facts) { f.findPod("a").Annotations = nil }, list: "v2 Settled: b 1"},
		"a pod is recreated with its name": {change: func(f *Facts) { f.deletePod("a"); f.addPods("a") }, list: "v1 Settled: b 1, a 2"},
		"a pod is replaced by one with another name": {
			change: func(f *Facts) { f.deletePod("a"); f.Missing["a"] = true; f.addPods("c") }, list: "v2 Settled: b 2, c 1",
		},
		"all pods are missing": {
			change:  func(f *Facts) { f.deletePod("a"); f.deletePod("b"); f.Missing["a"], f.Missing["b"] = true, true },
			list:    "v1 Settled: b 1, a 2",
			problem: "NoMembers: The selector matches no pods in namespace bank: check the labels, and whether the pods exist",
		},
		"all pods are missing, and a new one is not connected yet": {
			change: func(f *Facts) {
				f.deletePod("a")
				f.deletePod("b")
				f.Missing["a"], f.Missing["b"] = true, true
				delete(f.Connected, f.addPod("c").UID)
			},
			list: "v1 Settled: b 1, a 2",
		},
		"all pods are replaced": {
			change: func(f *Facts) {
				f.deletePod("a")
				f.deletePod("b")
				f.Missing["a"], f.Missing["b"] = true, true
				f.addPods("c", "d")
			},
			list: "v2 Settled: c 2, d 1",
		},
		"a member with an invalid annotation remains, and another pod joins": {
			change: func(f *Facts) { f.addPods("c"); setPriorityAnnotations(f, "a=x", "c=9") }, list: "v2 Settled: b 1, a 2, c 9",
			problem: `InvalidMembers: Pod a: annotation conclave.dev/priority must be an integer from 0 to 16383, got "x"`,
		},
		"a member with an invalid annotation does not move with the one below it": {
			change: func(f *Facts) { setPriorityAnnotations(f, "a=x", "b=9") }, list: "v2 Settled: b 9, a 2",
			problem: `InvalidMembers: Pod a: annotation conclave.dev/priority must be an integer from 0 to 16383, got "x"`,
		},
		"a member with an invalid annotation is no longer selected": {
			change: func(f *Facts) { setPriorityAnnotations(f, "a=x"); f.findPod("a").Labels = nil }, list: "v2 Settled: b 1",
		},
		"a pod with an invalid annotation does not join, and another one does": {
			change: func(f *Facts) { f.addPods("c", "d"); setPriorityAnnotations(f, "c=x", "d=9") }, list: "v2 Settled: b 1, a 2, d 9",
			problem: `InvalidMembers: Pod c: annotation conclave.dev/priority must be an integer from 0 to 16383, got "x"`,
		},
		"a pod with an invalid annotation, and no member can be elected": {
			change: func(f *Facts) { f.addPods("c"); setPriorityAnnotations(f, "a=0", "b=0", "c=x") }, list: "v1 Settled: b 1, a 2",
			problem: `InvalidMembers: Pod c: annotation conclave.dev/priority must be an integer from 0 to 16383, got "x"`,
		},
		"a member with priority 0 gets an invalid annotation": {
			change: func(f *Facts) { setPriorityAnnotations(f, "a=0"); f.settle(); setPriorityAnnotations(f, "a=x") }, list: "v2 Settled: b 1, a 0",
			problem: `InvalidMembers: Pod a: annotation conclave.dev/priority must be an integer from 0 to 16383, got "x"`,
		},
		"no member can be elected": {
			change: func(f *Facts) { setPriorityAnnotations(f, "a=0", "b=0") }, list: "v1 Settled: b 1, a 2",
			problem: "InvalidMembers: Every pod has priority 0: at least one pod must have a priority above 0",
		},
		"the selector is replaced by declared members": {
			change: func(f *Facts) { f.Group.Spec = v1.ElectionGroupSpec{Members: parseMembers("x 1, a 7")} }, list: "v2 Settled: x 1, a 7",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSelectorFacts(byAnnotation).addPods("a", "b")
			expect(t, "before", formatList(f.settle().List), "v1 Settled: b 1, a 2")
			c.change(f)
			p := f.settle()
			got, _, _ := strings.Cut(formatList(p.List), "; after")
			expect(t, "list", got, c.list)
			expect(t, "problem", formatProblem(p.Problem), c.problem)
		})
	}
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
	expect(t, "problem", formatProblem(p.Problem),
		"TooManyMembers: The selector matches 101 pods with agents, but a group has at most 100 members: narrow the selector")
	if p.List.Version != 1 {
		t.Errorf("got list %s", formatList(p.List)[:60])
	}
	f.deletePod("ledger-50")
	if p := f.settle(); p.Problem != nil && p.List.Version != 1 {
		t.Error("got a new list before the member has departed")
	}
	f.Missing["ledger-50"] = true
	if p := f.settle(); p.Problem != nil || p.List.Version != 2 || len(p.List.Members) != v1.MaxMembers {
		t.Errorf("a pod replaces a departed member: got problem %v", p.Problem)
	}
}

// TestUnknownNodes tests that a member whose node is unknown, or that has no pod, keeps its
// place among the others.
func TestUnknownNodes(t *testing.T) {
	f := newSelectorFacts(v1.PriorityFrom{NodeLabel: "tier"}).addPods("a", "b", "c", "d")
	for name, tier := range map[string]string{"a": "5", "b": "5", "c": "7", "d": "0"} {
		f.Nodes["node-"+name].Labels = map[string]string{"tier": tier}
	}
	const want = "v1 Settled: d 0, b 5, a 6, c 7"
	expect(t, "list", formatList(f.settle().List), want)
	for _, name := range []string{"a", "b", "c", "d"} {
		node := f.Nodes["node-"+name]
		delete(f.Nodes, "node-"+name)
		expect(t, "without the node of "+name, formatList(f.settle().List), want)
		f.Nodes["node-"+name] = node
	}
	clear(f.Nodes)
	expect(t, "without nodes", formatList(f.settle().List), want)
}
