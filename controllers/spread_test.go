package controllers_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func onNode(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = node }
}

// createNode creates a node. Nodes have no namespace, so it makes the name unique.
func (e *env) createNode(name string) string {
	e.t.Helper()
	name += "-" + e.namespace
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must.Succeed(e.t, e.client.Create(e.t.Context(), node))
	return name
}

func (e *env) changeNode(name string, change func(client.Object)) {
	e.t.Helper()
	e.update([]client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}, change)
}

func (e *env) awaitExcluded(agent *fakeagent.Agent, group string, excluded bool) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("the agent reports excluded=%t", excluded), func() bool {
		report, _ := agent.Report(group)
		return report.Excluded == excluded
	})
}

func withSpread(over v1.Spread, app string) func(*v1.ElectionGroup) {
	return func(g *v1.ElectionGroup) {
		withSelector(app)(g)
		withShortWaits(g)
		g.Spec.PriorityFrom = &v1.PriorityFrom{Annotation: v1.AnnotationPriority}
		g.Spec.Preemption = v1.Preemption{Policy: v1.PreemptAlways, Spread: over}
	}
}

func withAppOn(app, node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		withApp(app)(pod)
		onNode(node)(pod)
	}
}

// first returns the member with the highest priority in a list, or "".
func first(list *v1.MemberList) string {
	if list == nil {
		return ""
	}
	best := v1.Member{}
	for _, m := range list.Members {
		if m.Priority > best.Priority {
			best = m
		}
	}
	return best.Pod
}

// followPreferences makes the agents elect the member that each list prefers, as real ones do, until the test ends. It
// returns how often the coordinators of the groups have changed.
func (e *env) followPreferences(groups ...string) (moves func() int) {
	elected, terms := map[string]string{}, map[string]uint64{}
	count := 0
	return func() int {
		for _, name := range groups {
			g := e.group(name)
			pod := first(g.Status.Protocol.MemberList)
			if pod == "" || pod == elected[name] || g.Status.Protocol.MemberList.State != v1.ListSettled {
				continue
			}
			if elected[name] != "" {
				count++
			}
			elected[name] = pod
			terms[name]++
			e.elect(name, pod, terms[name])
		}
		return count
	}
}

// Four groups prefer a pod in the same zone. Two of them move, once. Groups without spread don't, and those whose other
// members can't be elected.
func TestCoordinatorsAreSpreadOverZones(t *testing.T) {
	e := newEnv(t)
	e.startOperator()
	west, east := e.createNode("west"), e.createNode("east")
	e.labelNode(west, corev1.LabelTopologyZone, "west-"+e.namespace)
	e.labelNode(east, corev1.LabelTopologyZone, "east-"+e.namespace)
	groups := []string{"g0", "g1", "g2", "g3", "alone"}
	agents := map[string]*fakeagent.Agent{}
	for _, g := range groups {
		agents[g] = e.podWith(g+"-a", []string{g}, withAppOn(g, west))
		e.podWith(g+"-b", []string{g}, withAppOn(g, east))
		over := v1.SpreadZone
		if g == "alone" {
			over = ""
		}
		e.createGroup(g, withSpread(over, g))
	}
	moves := e.followPreferences(groups...)
	spread := func() (inWest int) {
		for _, g := range groups[:4] {
			if first(e.group(g).Status.Protocol.MemberList) == g+"-a" {
				inWest++
			}
		}
		return inWest
	}
	e.eventually("two groups prefer a pod in each zone", func() bool { return moves() == 2 && spread() == 2 })
	expect.Equalf(t, first(e.group("alone").Status.Protocol.MemberList), "alone-a", "group without spread")

	// The evacuation of a zone moves no group of the other, and changes no list.
	versions := func() (all []int64) {
		for _, g := range groups {
			all = append(all, e.group(g).Status.Protocol.MemberList.Version)
		}
		return all
	}
	before := fmt.Sprint(versions())
	e.evacuate(west, time.Now().Add(time.Hour))
	for _, g := range groups {
		e.awaitExcluded(agents[g], g, true)
	}
	e.evacuate(west, time.Now().Add(-time.Second))
	for _, g := range groups {
		e.awaitExcluded(agents[g], g, false)
	}
	expect.Equalf(t, fmt.Sprint(versions()), before, "lists (an evacuation moves no preference)")
}

func (e *env) labelNode(name, key, value string) {
	e.t.Helper()
	e.changeNode(name, func(node client.Object) { node.SetLabels(map[string]string{key: value}) })
}

func (e *env) evacuate(name string, until time.Time) {
	e.t.Helper()
	e.changeNode(name, func(node client.Object) {
		node.SetAnnotations(map[string]string{v1.AnnotationEvacuateUntil: until.UTC().Format(time.RFC3339)})
	})
}
