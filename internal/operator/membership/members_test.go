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

// prefer gives pods the priorities in their annotations, as in "a=5".
func setPriorityAnnotations(f *Facts, wishes ...string) {
	for _, wish := range wishes {
		name, value, _ := strings.Cut(wish, "=")
		f.findPod(name).Annotations[v1.AnnotationPriority] = value
	}
}

func TestFirstList(t *testing.T) {
	for sentence, c := range map[string]struct {
		facts         *Facts
		change        func(*Facts)
		list, problem string
	}{
		"declared members are those, in that order": {
			facts: newDeclaredFacts("c 30, a 10, b 20"), list: "v1 Settled: c 30, a 10, b 20",
		},
		"declared members need no pods": {
			facts: newDeclaredFacts("a 10"), change: func(f *Facts) { f.addPods("x") }, list: "v1 Settled: a 10",
		},
		"the highest ordinal": {
			facts: newSelectorFacts(highest).addPods("ledger-2", "ledger-0", "ledger-10", "ledger-1"),
			list:  "v1 Settled: ledger-0 1, ledger-1 2, ledger-2 3, ledger-10 11",
		},
		"the lowest ordinal": {
			facts: newSelectorFacts(v1.PriorityFrom{Ordinal: v1.LowestFirst}).addPods("ledger-2", "ledger-0", "ledger-10", "ledger-1"),
			list:  "v1 Settled: ledger-10 1048565, ledger-2 1048573, ledger-1 1048574, ledger-0 1048575",
		},
		"an ordinal beyond all priorities": {
			facts: newSelectorFacts(highest).addPods("ledger-20260601", "ledger-20260602", "ledger-7"),
			list:  "v1 Settled: ledger-7 8, ledger-20260601 1048574, ledger-20260602 1048575",
		},
		"and from the other end": {
			facts: newSelectorFacts(v1.PriorityFrom{Ordinal: v1.LowestFirst}).addPods("ledger-20260601", "ledger-20260602", "ledger-7"),
			list:  "v1 Settled: ledger-20260602 1, ledger-20260601 2, ledger-7 1048568",
		},
		"the same ordinal in two workloads": {
			facts: newSelectorFacts(highest).addPods("x-0", "y-0", "x-1", "y-1"),
			list:  "v1 Settled: y-0 1, x-0 2, y-1 3, x-1 4",
		},
		"no ordinal": {
			facts:   newSelectorFacts(highest).addPods("ledger-0", "ledger-x7x", "web"),
			list:    "v1 Settled: ledger-0 1",
			problem: "InvalidMembers: Pod ledger-x7x: the name must end in a hyphen and a number, as in a StatefulSet, because priorityFrom is ordinal; 1 more pod is invalid",
		},
		"an annotation": {
			facts:  newSelectorFacts(byAnnotation).addPods("a", "b", "c", "d"),
			change: func(f *Facts) { setPriorityAnnotations(f, "a=30", "b=0", "c=1048575") },
			list:   "v1 Settled: b 0, d 1, a 30, c 1048575",
		},
		"the same annotation": {
			facts:  newSelectorFacts(byAnnotation).addPods("a", "b", "c", "d", "e"),
			change: func(f *Facts) { setPriorityAnnotations(f, "a=5", "b=5", "c=5", "d=6", "e=0") },
			list:   "v1 Settled: e 0, c 5, b 6, a 7, d 8",
		},
		"the same annotation at the top": {
			facts:  newSelectorFacts(byAnnotation).addPods("a", "b", "c"),
			change: func(f *Facts) { setPriorityAnnotations(f, "a=1048575", "b=1048575", "c=1048574") },
			list:   "v1 Settled: c 1048573, b 1048574, a 1048575",
		},
		"a bad annotation": {
			facts:   newSelectorFacts(byAnnotation).addPods("a", "b", "c"),
			change:  func(f *Facts) { setPriorityAnnotations(f, "b=high") },
			list:    "v1 Settled: c 1, a 2",
			problem: `InvalidMembers: Pod b: annotation conclave.dev/priority must be an integer from 0 to 1048575, got "high"`,
		},
		"an empty one": {
			facts:   newSelectorFacts(byAnnotation).addPods("a"),
			change:  func(f *Facts) { setPriorityAnnotations(f, "a=") },
			problem: `InvalidMembers: Pod a: annotation conclave.dev/priority must be an integer from 0 to 1048575, got ""`,
		},
		"one that is too high": {
			facts:   newSelectorFacts(byAnnotation).addPods("a"),
			change:  func(f *Facts) { setPriorityAnnotations(f, "a=1048576") },
			problem: `InvalidMembers: Pod a: annotation conclave.dev/priority must be an integer from 0 to 1048575, got "1048576"`,
		},
		"a long one": {
			facts:  newSelectorFacts(byAnnotation).addPods("a"),
			change: func(f *Facts) { setPriorityAnnotations(f, "a="+strings.Repeat("9", 1000)) },
			problem: `InvalidMembers: Pod a: annotation conclave.dev/priority must be an integer from 0 to 1048575, got "` +
				strings.Repeat("9", 32) + `..."`,
		},
		"a bad one, and nobody else would stand": {
			facts:   newSelectorFacts(byAnnotation).addPods("a", "b"),
			change:  func(f *Facts) { setPriorityAnnotations(f, "a=0", "b=high") },
			problem: `InvalidMembers: Pod b: annotation conclave.dev/priority must be an integer from 0 to 1048575, got "high"`,
		},
		"nobody would stand": {
			facts:   newSelectorFacts(byAnnotation).addPods("a", "b"),
			change:  func(f *Facts) { setPriorityAnnotations(f, "a=0", "b=0") },
			problem: "InvalidMembers: Every pod has priority 0: at least one pod must have a priority above 0",
		},
		"a node's label": {
			facts: newSelectorFacts(v1.PriorityFrom{NodeLabel: "tier"}).addPods("a", "b", "c"),
			change: func(f *Facts) {
				f.Nodes["node-a"].Labels = map[string]string{"tier": "7"}
				f.Nodes["node-b"].Labels = map[string]string{"tier": "0"}
			},
			list: "v1 Settled: b 0, c 1, a 7",
		},
		"a node's bad label": {
			facts:   newSelectorFacts(v1.PriorityFrom{NodeLabel: "tier"}).addPods("a"),
			change:  func(f *Facts) { f.Nodes["node-a"].Labels = map[string]string{"tier": "-1"} },
			problem: `InvalidMembers: Pod a: label tier of node node-a must be an integer from 0 to 1048575, got "-1"`,
		},
		"a node that isn't known yet": {
			facts:  newSelectorFacts(v1.PriorityFrom{NodeLabel: "tier"}).addPods("a", "b"),
			change: func(f *Facts) { delete(f.Nodes, "node-a") },
			list:   "v1 Settled: b 1",
		},
		"a name that members can't have": {
			facts:   newSelectorFacts(byAnnotation).addPods(strings.Repeat("a", 64)),
			problem: "InvalidMembers: Pod " + strings.Repeat("a", 64) + ": each part of a member's name between dots must have at most 63 characters",
		},
		"no pods": {
			facts:   newSelectorFacts(byAnnotation),
			problem: "NoMembers: The selector matches no pods in namespace bank: check the labels, and whether the pods exist",
		},
		"pods that don't name the group": {
			facts: newSelectorFacts(byAnnotation).addPods("a", "b"),
			change: func(f *Facts) {
				f.findPod("a").Annotations = nil
				f.findPod("b").Annotations[v1.AnnotationGroups] = "ledgers, other"
			},
			problem: "NoMembers: The selector matches a and b, but no pod lists the group: add the label conclave.dev/agent: enabled " +
				"and the annotation conclave.dev/groups: ledger to the pod template, and recreate the pods",
		},
		"pods that have other labels, or have ended": {
			facts: newSelectorFacts(byAnnotation).addPods("a", "b", "c"),
			change: func(f *Facts) {
				f.findPod("a").Labels = nil
				f.findPod("b").Status.Phase = corev1.PodSucceeded
				f.findPod("c").Annotations[v1.AnnotationGroups] = "other, ledger"
			},
			list: "v1 Settled: c 1",
		},
		"an agent that runs is waited for": {
			facts: newSelectorFacts(byAnnotation).addPods("a", "b"), change: func(f *Facts) { delete(f.Connected, f.findPod("a").UID) },
			list: "none",
		},
		"but not for ever": {
			facts: newSelectorFacts(byAnnotation).addPods("a", "b"), change: func(f *Facts) { delete(f.Connected, f.findPod("a").UID); f.FirstListComplete = true },
			list: "v1 Settled: b 1",
		},
		"a pod that waits for a node isn't": {
			facts: newSelectorFacts(byAnnotation).addPods("a", "b"),
			change: func(f *Facts) {
				delete(f.Connected, f.findPod("a").UID)
				f.findPod("a").Status.Phase = corev1.PodPending
			},
			list: "v1 Settled: b 1",
		},
		"nor is one that is being deleted, which doesn't become a member either": {
			facts: newSelectorFacts(byAnnotation).addPods("a", "b", "c"),
			change: func(f *Facts) {
				delete(f.Connected, f.findPod("a").UID)
				f.findPod("a").DeletionTimestamp = new(metav1.NewTime(noon))
				f.findPod("c").DeletionTimestamp = new(metav1.NewTime(noon))
			},
			list: "v1 Settled: b 1",
		},
		"no agents, however long": {
			facts: newSelectorFacts(byAnnotation).addPods("a"), change: func(f *Facts) { clear(f.Connected); f.FirstListComplete = true }, list: "none",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if c.change != nil {
				c.change(c.facts)
			}
			p := c.facts.step()
			c.list = cmp.Or(c.list, "none")
			expect(t, "list", formatList(p.List), c.list)
			expect(t, "problem", formatProblem(p.Problem), c.problem)
			if (p.ConfigMap == nil) != (p.List == nil) || (p.Document == nil) != (p.List == nil) {
				t.Errorf("the list is %s, and the ConfigMap %v", formatList(p.List), p.ConfigMap)
			}
		})
	}
}

// TestLaterLists begins each case with b 1, a 2, of which a is the older and
// hears what becomes of them.
func TestLaterLists(t *testing.T) {
	for sentence, c := range map[string]struct {
		change        func(*Facts)
		list, problem string
	}{
		"nothing happens":                {change: func(*Facts) {}, list: "v1 Settled: b 1, a 2"},
		"one joins, below its equals":    {change: func(f *Facts) { f.addPods("c") }, list: "v2 Settled: b 2, a 3, c 1"},
		"one joins above":                {change: func(f *Facts) { f.addPods("c"); setPriorityAnnotations(f, "c=9") }, list: "v2 Settled: b 1, a 2, c 9"},
		"one joins that never stands":    {change: func(f *Facts) { f.addPods("c"); setPriorityAnnotations(f, "c=0") }, list: "v2 Settled: b 1, a 2, c 0"},
		"one joins whose agent isn't up": {change: func(f *Facts) { delete(f.Connected, f.addPod("c").UID) }, list: "v1 Settled: b 1, a 2"},
		"one is preferred":               {change: func(f *Facts) { setPriorityAnnotations(f, "b=9") }, list: "v2 Settled: b 9, a 2"},
		"one is to stand no more":        {change: func(f *Facts) { setPriorityAnnotations(f, "a=0") }, list: "v2 Settled: b 1, a 0"},
		"an agent is lost":               {change: func(f *Facts) { delete(f.Connected, f.findPod("a").UID) }, list: "v1 Settled: b 1, a 2"},
		"a pod is being deleted": {
			change: func(f *Facts) { f.findPod("a").DeletionTimestamp = new(metav1.NewTime(noon)) }, list: "v1 Settled: b 1, a 2",
		},
		"a pod has gone just now":  {change: func(f *Facts) { f.deletePod("a") }, list: "v1 Settled: b 1, a 2"},
		"a pod has been gone":      {change: func(f *Facts) { f.deletePod("a"); f.Missing["a"] = true }, list: "v2 Settled: b 1"},
		"a pod has ended just now": {change: func(f *Facts) { f.findPod("a").Status.Phase = corev1.PodFailed }, list: "v1 Settled: b 1, a 2"},
		"a pod has ended a while ago": {
			change: func(f *Facts) { f.findPod("a").Status.Phase = corev1.PodFailed; f.Missing["a"] = true }, list: "v2 Settled: b 1",
		},
		"a pod isn't selected any more":     {change: func(f *Facts) { f.findPod("a").Labels = nil }, list: "v2 Settled: b 1"},
		"a pod names the group no more":     {change: func(f *Facts) { f.findPod("a").Annotations = nil }, list: "v2 Settled: b 1"},
		"a pod was replaced under its name": {change: func(f *Facts) { f.deletePod("a"); f.addPods("a") }, list: "v1 Settled: b 1, a 2"},
		"another one in its place, under another name": {
			change: func(f *Facts) { f.deletePod("a"); f.Missing["a"] = true; f.addPods("c") }, list: "v2 Settled: b 2, c 1",
		},
		"all are gone": {
			change:  func(f *Facts) { f.deletePod("a"); f.deletePod("b"); f.Missing["a"], f.Missing["b"] = true, true },
			list:    "v1 Settled: b 1, a 2",
			problem: "NoMembers: The selector matches no pods in namespace bank: check the labels, and whether the pods exist",
		},
		"all are gone, and the others aren't heard yet": {
			change: func(f *Facts) {
				f.deletePod("a")
				f.deletePod("b")
				f.Missing["a"], f.Missing["b"] = true, true
				delete(f.Connected, f.addPod("c").UID)
			},
			list: "v1 Settled: b 1, a 2",
		},
		"all are replaced": {
			change: func(f *Facts) {
				f.deletePod("a")
				f.deletePod("b")
				f.Missing["a"], f.Missing["b"] = true, true
				f.addPods("c", "d")
			},
			list: "v2 Settled: c 2, d 1",
		},
		"a member with a bad annotation stays as it is, and others join": {
			change: func(f *Facts) { f.addPods("c"); setPriorityAnnotations(f, "a=x", "c=9") }, list: "v2 Settled: b 1, a 2, c 9",
			problem: `InvalidMembers: Pod a: annotation conclave.dev/priority must be an integer from 0 to 1048575, got "x"`,
		},
		"it isn't taken along when one below it rises": {
			change: func(f *Facts) { setPriorityAnnotations(f, "a=x", "b=9") }, list: "v2 Settled: b 9, a 2",
			problem: `InvalidMembers: Pod a: annotation conclave.dev/priority must be an integer from 0 to 1048575, got "x"`,
		},
		"it leaves like any other": {
			change: func(f *Facts) { setPriorityAnnotations(f, "a=x"); f.findPod("a").Labels = nil }, list: "v2 Settled: b 1",
		},
		"one with a bad annotation doesn't join, and others do": {
			change: func(f *Facts) { f.addPods("c", "d"); setPriorityAnnotations(f, "c=x", "d=9") }, list: "v2 Settled: b 1, a 2, d 9",
			problem: `InvalidMembers: Pod c: annotation conclave.dev/priority must be an integer from 0 to 1048575, got "x"`,
		},
		"nor does it when nobody is to stand": {
			change: func(f *Facts) { f.addPods("c"); setPriorityAnnotations(f, "a=0", "b=0", "c=x") }, list: "v1 Settled: b 1, a 2",
			problem: `InvalidMembers: Pod c: annotation conclave.dev/priority must be an integer from 0 to 1048575, got "x"`,
		},
		"a member that never stands doesn't begin to by a bad annotation": {
			change: func(f *Facts) { setPriorityAnnotations(f, "a=0"); f.settle(); setPriorityAnnotations(f, "a=x") }, list: "v2 Settled: b 1, a 0",
			problem: `InvalidMembers: Pod a: annotation conclave.dev/priority must be an integer from 0 to 1048575, got "x"`,
		},
		"nobody is to stand": {
			change: func(f *Facts) { setPriorityAnnotations(f, "a=0", "b=0") }, list: "v1 Settled: b 1, a 2",
			problem: "InvalidMembers: Every pod has priority 0: at least one pod must have a priority above 0",
		},
		"members are declared from now on": {
			change: func(f *Facts) { f.Group.Spec = v1.ElectionGroupSpec{Members: parseMembers("x 1, a 7")} }, list: "v2 Settled: x 1, a 7",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
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
		t.Fatalf("a thousand: %v", p.Problem)
	}
	f.addPods("ledger-1000")
	p := f.settle()
	expect(t, "problem", formatProblem(p.Problem),
		"TooManyMembers: The selector matches 1001 pods with agents, but a group has at most 1000 members: narrow the selector")
	if p.List.Version != 1 {
		t.Errorf("and the list became %s", formatList(p.List)[:60])
	}
	f.deletePod("ledger-500")
	if p := f.settle(); p.Problem != nil && p.List.Version != 1 {
		t.Error("one that has just gone still has its place")
	}
	f.Missing["ledger-500"] = true
	if p := f.settle(); p.Problem != nil || p.List.Version != 2 || len(p.List.Members) != v1.MaxMembers {
		t.Errorf("one in its place: %v", p.Problem)
	}
}

// TestNodesAreForgotten: a member whose node isn't known, or that has no pod,
// keeps its place among the others.
func TestNodesAreForgotten(t *testing.T) {
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
