package decide

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// noon is the time at which each test starts: before 2026, so that versions are 1, 2, 3 and so on.
var noon = time.Date(2025, time.June, 1, 12, 0, 0, 0, time.UTC)

const uid = "6f0c"

// operator is a replica of the operator with a group of a, b and c, and what it remembers of it.
type operator struct {
	facts.Facts

	memory Memory
}

// newOperator returns a leader that has just started. It knows no pod and no agent, and has published list 1.
func newOperator() *operator {
	o := &operator{Facts: facts.Facts{
		Now: noon, Pods: map[string]*corev1.Pod{}, Agents: map[string]facts.Agent{}, Fresh: map[string]bool{},
		Group: &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger", UID: uid, Generation: 1}},
	}}
	o.Group.Spec.Members = []v1.Member{{Pod: "a", Priority: 1}, {Pod: "b", Priority: 2}, {Pod: "c", Priority: 3}}
	o.Group.Status.Protocol.MemberList = &v1.MemberList{Version: 1, State: v1.ListSettled, Members: o.Group.Spec.Members}
	o.Group.Status.Protocol.Document = &v1.PublishedDocument{Revision: 1}
	return o
}

// newElectedOperator returns a leader whose group is healthy, with coordinator c in the first term of list 1.
func newElectedOperator() *operator {
	o := newOperator()
	o.Group.Status = v1.ElectionGroupStatus{}
	for _, name := range []string{"a", "b", "c"} {
		o.createPod(name)
		o.Agents[name] = facts.Agent{Connected: true}
	}
	o.apply()
	for _, name := range []string{"a", "b", "c"} {
		o.createPod(name)
	}
	o.elect("c", firstTerm, "a", "b", "c")
	o.apply()
	return o
}

const firstTerm = 1<<16 + 1

// newPod returns a running pod with an agent.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "bank", Name: name, UID: types.UID("pod-" + name),
			Labels:      map[string]string{v1.LabelAgent: v1.AgentEnabled},
			Annotations: map[string]string{v1.AnnotationGroups: "ledger"},
		},
		Spec:   corev1.PodSpec{NodeName: "node-" + name, InitContainers: []corev1.Container{{Name: v1.AgentContainer}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0." + name[:1]},
	}
}

// createPod creates a running pod with an agent that reports the list in force.
func (o *operator) createPod(name string) *corev1.Pod {
	o.Pods[name] = newPod(name)
	o.Agents[name] = facts.Agent{Connected: true, AdoptedAt: o.Now, Report: o.newReport(name)}
	return o.Pods[name]
}

func (o *operator) newReport(name string) *control.Report {
	r := &control.Report{Pod: name, UID: uid, Generation: 1, Version: 1, Digest: "d", Eligible: true}
	if d := o.Group.Status.Protocol.Document; d != nil {
		r.Revision = d.Revision
	}
	for _, m := range o.Group.Spec.Members {
		r.Processes = append(r.Processes, control.Row{Name: m.Pod, Status: "Normal", Connected: true})
	}
	return r
}

// change changes what is known about the agents of pods.
func (o *operator) change(change func(*facts.Agent), pods ...string) {
	for _, pod := range pods {
		agent := o.Agents[pod]
		if agent.Report != nil {
			agent.Report = new(*agent.Report)
		}
		change(&agent)
		o.Agents[pod] = agent
	}
}

// elect makes the agents of some pods report a coordinator, or none.
func (o *operator) elect(coordinator string, term uint64, pods ...string) {
	o.change(func(a *facts.Agent) {
		a.Report.ChangedAt = o.Now
		a.Report.Coordinator, a.Report.Term, a.Report.ElectedAt = coordinator, term, o.Now
	}, pods...)
}

// connect makes exactly these agents connected.
func (o *operator) connect(pods ...string) {
	clear(o.Agents)
	for _, pod := range pods {
		o.Agents[pod] = facts.Agent{Connected: true}
	}
}

// newStep returns a step that hasn't been made.
func (o *operator) newStep() *step { return &step{Facts: &o.Facts, Memory: o.memory} }

// step makes a step. It reads what the step asks for: nothing else than what is known.
func (o *operator) step() (actions Actions) {
	for range 5 {
		actions, o.memory = Step(&o.Facts, o.memory)
		switch {
		case actions.Read != nil:
			o.Confirmed = true
			for _, pod := range actions.Read.Pods {
				o.Fresh[pod] = true
			}
		case actions.Hold != nil:
			o.HoldTried = true
		default:
			o.Confirmed, o.HoldTried = false, false
			clear(o.Fresh)
			return actions
		}
	}
	panic("a step asks for the same facts again")
}

// apply makes a step, and applies it.
func (o *operator) apply() Actions {
	actions := o.step()
	o.memory = o.memory.Applied(&o.Facts, &actions)
	if actions.Status != nil {
		o.Group = o.Group.DeepCopy()
		o.Group.Status = *actions.Status.DeepCopy()
	}
	if t := actions.Traffic; t != nil {
		for _, l := range slices.Concat(t.Demotions, t.Labels) {
			o.Pods[l.Pod.Name] = l.Pod.DeepCopy()
			if o.Pods[l.Pod.Name].Labels[v1.RoleLabel("ledger")] = l.Role; l.Role == "" {
				delete(o.Pods[l.Pod.Name].Labels, v1.RoleLabel("ledger"))
			}
		}
	}
	return actions
}

// ownedByGroup makes the group ledger with a UID the controller of an object.
func ownedByGroup(object metav1.Object, of types.UID) {
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1.GroupVersion.String(), Kind: "ElectionGroup", Name: "ledger", UID: of, Controller: new(true),
	}})
}
