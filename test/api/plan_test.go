package api

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
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/operator/decide"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestPlansAreAccepted tests that the API server accepts and stores each status that the
// operator derives, whatever users edit and agents report.
func TestPlansAreAccepted(t *testing.T) {
	c := typedClient(t)
	for i := range 12 {
		h := &harness{t: t, c: c, rng: rand.New(rand.NewPCG(uint64(i), 5)), now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)}
		h.createGroup(fmt.Sprint("planned-", i))
		for range 40 {
			h.randomEdit()
			h.step()
			if t.Failed() {
				t.Fatalf("group %d failed", i)
			}
		}
		if list := h.group.Status.Protocol.MemberList; list == nil || list.Previous == nil || len(list.Identities) == 0 ||
			h.group.Status.Term == 0 {
			t.Errorf("group %d: got list %+v, want a later one with identities", i, list)
		}
	}
}

// harness is an operator with one group, and pods that do not exist in the API server.
type harness struct {
	t      *testing.T
	c      client.Client
	rng    *rand.Rand
	now    time.Time
	group  *v1.ElectionGroup
	pods   map[string]*corev1.Pod
	agents map[string]facts.Agent
	memory decide.Memory
	term   uint64
}

const podCount = 6

func (h *harness) createGroup(name string) {
	h.group = &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	h.group.Spec.Safety.Mode = []v1.SafetyMode{v1.Available, v1.Majority, v1.Strict}[h.rng.IntN(3)]
	h.declareMembers()
	must.Succeed(h.t, h.c.Create(h.t.Context(), h.group))
	h.t.Cleanup(func() {
		expect.Succeed(h.t, h.c.Delete(context.WithoutCancel(h.t.Context()), h.group))
	})
	h.pods, h.agents = map[string]*corev1.Pod{}, map[string]facts.Agent{}
	h.term = uint64(control.SecondsAt(h.now)) << memberlist.CounterBits
	for i := range podCount {
		h.createPod(fmt.Sprint("web-", i))
	}
}

func (h *harness) createPod(name string) {
	h.pods[name] = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name),
			Labels:      map[string]string{"app": "web", v1.LabelAgent: v1.AgentEnabled},
			Annotations: map[string]string{v1.AnnotationGroups: h.group.Name, v1.AnnotationPriority: fmt.Sprint(h.rng.IntN(4))},
		},
		Spec:   corev1.PodSpec{InitContainers: []corev1.Container{{Name: v1.AgentContainer}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	h.agents[name] = facts.Agent{Connected: true, Identity: memberlist.FormatIdentity(h.rng.Uint64())}
}

// declareMembers declares random members.
func (h *harness) declareMembers() {
	h.group.Spec.Selector, h.group.Spec.PriorityFrom, h.group.Spec.Members = nil, nil, nil
	for i := range podCount {
		if h.rng.IntN(2) == 0 {
			h.group.Spec.Members = append(h.group.Spec.Members,
				v1.Member{Pod: fmt.Sprint("web-", i), Priority: int32(h.rng.IntN(2) * (i + 1))})
		}
	}
	h.group.Spec.Members = append(h.group.Spec.Members, v1.Member{Pod: "web.one", Priority: 50})
}

// useSelector replaces the declared members by a selector.
func (h *harness) useSelector() {
	h.group.Spec.Members = nil
	h.group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "web"}}
	h.group.Spec.PriorityFrom = []*v1.PriorityFrom{
		{Ordinal: v1.HighestFirst}, {Ordinal: v1.LowestFirst}, {Annotation: v1.AnnotationPriority}, {NodeLabel: "tier"},
	}[h.rng.IntN(4)]
}

// randomEdit changes the spec, a pod, or the reports of agents.
func (h *harness) randomEdit() {
	name := fmt.Sprint("web-", h.rng.IntN(podCount))
	change := map[int]func(){
		0: h.declareMembers,
		1: h.useSelector,
		2: func() {
			h.group.Spec.Service = &v1.CoordinatorService{Name: h.group.Name + "-front", Ports: []v1.ServicePort{{Port: 80}}}
		},
	}[h.rng.IntN(8)]
	if change != nil {
		status := h.group.Status
		change()
		if err := h.c.Update(h.t.Context(), h.group); err != nil {
			h.t.Fatal(causes(h.t, err))
		}
		h.group.Status = status
	}
	switch h.rng.IntN(6) {
	case 0:
		delete(h.pods, name)
		delete(h.agents, name)
	case 1:
		h.createPod(name)
	case 2:
		h.agents[name] = facts.Agent{Problem: "connection refused", Identity: h.agents[name].Identity}
	}
	elected := h.rng.IntN(podCount)
	for name := range h.pods {
		h.randomReport(name, elected)
	}
	h.now = h.now.Add(time.Duration(h.rng.IntN(3000)) * time.Millisecond)
}

// randomReport makes an agent report a coordinator: mostly the elected one, which counts
// when a majority reports it, and otherwise a random one.
func (h *harness) randomReport(name string, elected int) {
	list := h.group.Status.Protocol.MemberList
	if list == nil || !h.agents[name].Connected {
		return
	}
	if h.rng.IntN(8) == 0 {
		h.term++
	}
	report := &control.Report{Pod: name, UID: string(h.group.UID), Generation: h.group.Generation, Version: uint32(
		list.Version), Digest: "d", Eligible: true}
	switch h.rng.IntN(8) {
	case 0:
	case 1:
		coordinator := list.Members[h.rng.IntN(len(list.Members))].Pod
		report.Coordinator, report.Term, report.ElectedAt = coordinator, h.term-uint64(h.rng.IntN(3)), h.now
	default:
		report.Coordinator, report.Term, report.ElectedAt = list.Members[elected%len(list.Members)].Pod, h.term, h.now
	}
	for _, m := range list.Members {
		report.Processes = append(report.Processes, control.Row{
			Name: m.Pod, Status: []string{"Normal", "Crashed"}[h.rng.IntN(2)], Connected: true,
		})
	}
	adopted := h.now.Add(-time.Duration(h.rng.IntN(3)) * time.Hour)
	h.agents[name] = facts.Agent{Connected: true, Identity: h.agents[name].Identity, Report: report, AdoptedAt: adopted}
}

// step makes a step, as the operator does, and writes its status.
func (h *harness) step() {
	known := facts.Facts{
		Group: h.group, Now: h.now, Pods: h.pods, Agents: h.agents, Confirmed: true, HoldTried: true,
		Fresh: map[string]bool{},
	}
	actions := decide.Actions{Read: &decide.Read{}}
	for actions.Read != nil {
		for _, pod := range actions.Read.Pods {
			known.Fresh[pod] = true
		}
		actions, h.memory = decide.Step(&known, h.memory)
	}
	if actions.Status != nil {
		h.writeStatus(actions.Status)
	}
}

func (h *harness) writeStatus(status *v1.ElectionGroupStatus) {
	h.group.Status = *status.DeepCopy()
	if err := h.c.Status().Update(h.t.Context(), h.group); err != nil {
		h.t.Fatalf("%v\n%+v", causes(h.t, err), status)
	}
	if !equality.Semantic.DeepEqual(*status, h.group.Status) {
		h.t.Errorf("got status\n%+v\nwant\n%+v", h.group.Status, *status)
	}
}
