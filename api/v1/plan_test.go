package v1_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// TestNoPlanIsRefused: whatever a user edits, and whatever agents say, the API
// server takes each status that the operator makes of it, and keeps it as it is.
func TestNoPlanIsRefused(t *testing.T) {
	c := typed(t)
	for i := range 12 {
		o := &office{t: t, c: c, rng: rand.New(rand.NewPCG(uint64(i), 5)), now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)}
		o.open(fmt.Sprint("planned-", i))
		for range 40 {
			o.edit()
			o.step()
			if t.Failed() {
				t.Fatalf("this was group %d", i)
			}
		}
		if o.group.Status.MemberList == nil || o.group.Status.MemberList.Version < 3 || o.group.Status.Term == 0 {
			t.Errorf("group %d has come no further than %+v", i, o.group.Status.MemberList)
		}
	}
}

// office is an operator with one group, and pods that are there in its mind only.
type office struct {
	t     *testing.T
	c     client.Client
	rng   *rand.Rand
	now   time.Time
	group *v1.ElectionGroup
	pods  map[string]*corev1.Pod
	said  map[string]groupstatus.AgentState
	term  uint64
	known *control.Document
}

const officePods = 6

func (o *office) open(name string) {
	o.group = &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	o.group.Spec.Safety.Mode = []v1.SafetyMode{v1.Available, v1.Majority, v1.Strict}[o.rng.IntN(3)]
	o.declare()
	if err := o.c.Create(o.t.Context(), o.group); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() {
		if err := o.c.Delete(context.WithoutCancel(o.t.Context()), o.group); err != nil {
			o.t.Error(err)
		}
	})
	o.pods, o.said = map[string]*corev1.Pod{}, map[string]groupstatus.AgentState{}
	o.term = uint64(control.TermAt(o.now))
	for i := range officePods {
		o.run(fmt.Sprint("web-", i))
	}
}

func (o *office) run(name string) {
	o.pods[name] = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{v1.AnnotationGroups: o.group.Name, v1.AnnotationPriority: fmt.Sprint(o.rng.IntN(4))},
		},
		Spec:   corev1.PodSpec{InitContainers: []corev1.Container{{Name: v1.AgentContainer}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	o.said[name] = groupstatus.AgentState{Connected: true}
}

// declare declares members.
func (o *office) declare() {
	o.group.Spec.Selector, o.group.Spec.PriorityFrom, o.group.Spec.Members = nil, nil, nil
	for i := range officePods {
		if o.rng.IntN(2) == 0 {
			o.group.Spec.Members = append(o.group.Spec.Members, v1.Member{Pod: fmt.Sprint("web-", i), Priority: int32(o.rng.IntN(2) * (i + 1))})
		}
	}
	o.group.Spec.Members = append(o.group.Spec.Members, v1.Member{Pod: "web.one", Priority: 50})
}

// choose has a selector find the members.
func (o *office) choose() {
	o.group.Spec.Members = nil
	o.group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "web"}}
	o.group.Spec.PriorityFrom = []*v1.PriorityFrom{
		{Ordinal: v1.HighestFirst}, {Ordinal: v1.LowestFirst}, {Annotation: v1.AnnotationPriority}, {NodeLabel: "tier"},
	}[o.rng.IntN(4)]
}

// edit changes something: the spec, a pod, or what an agent says.
func (o *office) edit() {
	name := fmt.Sprint("web-", o.rng.IntN(officePods))
	change := map[int]func(){
		0: o.declare,
		1: o.choose,
		2: func() {
			o.group.Spec.Service = &v1.CoordinatorService{Name: o.group.Name + "-front", Ports: []v1.ServicePort{{Port: 80}}}
		},
	}[o.rng.IntN(8)]
	if change != nil {
		status := o.group.Status
		change()
		if err := o.c.Update(o.t.Context(), o.group); err != nil {
			o.t.Fatal(complaints(o.t, err))
		}
		o.group.Status = status
	}
	switch o.rng.IntN(6) {
	case 0:
		delete(o.pods, name)
		delete(o.said, name)
	case 1:
		o.run(name)
	case 2:
		o.said[name] = groupstatus.AgentState{Problem: "connection refused"}
	}
	for name := range o.pods {
		o.speak(name)
	}
	o.now = o.now.Add(time.Duration(o.rng.IntN(3000)) * time.Millisecond)
}

// speak has an agent say something about who leads.
func (o *office) speak(name string) {
	list := o.group.Status.MemberList
	if list == nil || !o.said[name].Connected {
		return
	}
	o.term += uint64(o.rng.IntN(2))
	said := &control.Report{Pod: name, UID: string(o.group.UID), Generation: o.group.Generation, Version: uint32(list.Version), Digest: "d", Eligible: true}
	if o.rng.IntN(4) > 0 {
		leader := list.Members[o.rng.IntN(len(list.Members))].Pod
		said.Coordinator, said.Term, said.ElectedAt = leader, o.term-uint64(o.rng.IntN(3)), o.now
	}
	for _, m := range list.Members {
		said.Processes = append(said.Processes, control.Row{
			Name: m.Pod, Status: []string{"Normal", "Crashed"}[o.rng.IntN(2)], Connected: true,
		})
	}
	o.said[name] = groupstatus.AgentState{Connected: true, Report: said}
}

// step plans and reports, as the operator does, and writes each status.
func (o *office) step() {
	facts := membership.Facts{
		Group: o.group, Now: o.now, FirstListComplete: true, Connected: map[types.UID]bool{}, Adopted: map[string]bool{}, Missing: map[string]bool{},
		Published: o.known,
	}
	for name, pod := range o.pods {
		facts.Pods = append(facts.Pods, pod)
		facts.Connected[pod.UID] = o.said[name].Connected
		facts.Adopted[name] = o.rng.IntN(3) > 0
	}
	for i := range officePods {
		name := fmt.Sprint("web-", i)
		facts.Missing[name] = o.pods[name] == nil
	}
	facts.Missing["web.one"] = true
	p := membership.MakePlan(facts)
	if p.List != nil {
		status := *o.group.Status.DeepCopy()
		status.MemberList = p.List
		o.write(&status)
		o.known = p.Document
	}
	r := groupstatus.Evaluate(groupstatus.Facts{
		Group: o.group, List: p.List, Problem: p.Problem, ServiceConflict: p.ServiceConflict, Pods: o.pods, Agents: o.said, Now: o.now,
	})
	o.write(&r.Status)
}

func (o *office) write(status *v1.ElectionGroupStatus) {
	o.group.Status = *status.DeepCopy()
	if err := o.c.Status().Update(o.t.Context(), o.group); err != nil {
		o.t.Fatalf("%v\n%+v", complaints(o.t, err), status)
	}
	if !equality.Semantic.DeepEqual(*status, o.group.Status) {
		o.t.Errorf("the API server has made\n%+v\nof\n%+v", o.group.Status, *status)
	}
}
