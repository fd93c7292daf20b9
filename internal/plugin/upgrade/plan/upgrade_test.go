package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/plugin/upgrade/plan"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// state returns a group of three members, with ledger-2 as coordinator, and pods that have an
// old agent.
func state() *plan.State {
	s := &plan.State{Image: "agent:2", Now: now}
	g := v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	g.Status.Coordinator, g.Status.ObservedGeneration = &v1.Coordinator{Pod: "ledger-2", Priority: 30}, 1
	g.Status.Conditions = []metav1.Condition{{Type: string(v1.ConditionAvailable), Status: metav1.ConditionTrue}}
	for i := range int32(3) {
		name := fmt.Sprint("ledger-", 2-i)
		g.Status.Processes = append(g.Status.Processes, v1.Process{Pod: name, Priority: 30 - 10*i, Status: v1.ProcessNormal})
		s.Pods = append(s.Pods, pod(name, "agent:1"))
	}
	g.Status.Processes[0].Status = v1.ProcessCoordinator
	s.Groups = []v1.ElectionGroup{g}
	return s
}

func pod(name, image string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "bank", Name: name, Annotations: map[string]string{v1.AnnotationGroups: "ledger"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "ledger", Controller: new(true)}},
	}}
	p.Spec.InitContainers = []corev1.Container{{Name: v1.AgentContainer, Image: image, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

// describe prints the plan, and the first step or why it must wait.
func describe(s *plan.State) string {
	steps := s.Plan()
	var names []string
	for i := range steps {
		text := steps[i].Pod.Name
		for _, g := range steps[i].HandOvers {
			text += " hands over " + g.Name
		}
		for _, g := range steps[i].Vacates {
			text += " vacates " + g.Name
		}
		names = append(names, text)
	}
	next, obstacle := s.Next(steps)
	if next != nil {
		obstacle = "next " + next.Pod.Name
	}
	return strings.Join(names, ", ") + ": " + obstacle
}

func TestOrderOfSteps(t *testing.T) {
	const all = "ledger-0, ledger-1, ledger-2 hands over ledger: "
	const last = "ledger-2 hands over ledger: "
	// onlyCoordinator leaves the coordinator as the only outdated pod.
	onlyCoordinator := func(s *plan.State) { s.Pods[1], s.Pods[2] = pod("ledger-1", "agent:2"), pod("ledger-0", "agent:2") }
	for name, test := range map[string]struct {
		change func(*plan.State)
		want   string
	}{
		"the coordinator comes last":                  {func(*plan.State) {}, all + "next ledger-0"},
		"nothing is outdated":                         {func(s *plan.State) { s.Image = "agent:1" }, ": "},
		"another group":                               {func(s *plan.State) { s.Group = "mail" }, ": "},
		"a pod without a controller":                  {func(s *plan.State) { s.Pods[2].OwnerReferences = nil }, "ledger-1, ledger-2 hands over ledger: next ledger-1"},
		"a pod that has finished":                     {func(s *plan.State) { s.Pods[1].Status.Phase = corev1.PodFailed }, "ledger-0, ledger-2 hands over ledger: next ledger-0"},
		"a pod that isn't ready":                      {func(s *plan.State) { s.Pods[1].Status.Conditions = nil }, "ledger-1, ledger-0, ledger-2 hands over ledger: next ledger-1"},
		"only the coordinator":                        {onlyCoordinator, last + "next ledger-2"},
		"a member without a pod":                      {func(s *plan.State) { s.Pods = s.Pods[:2] }, "ledger-1, ledger-2 hands over ledger: member ledger-0 of group ledger has no pod"},
		"a member that has crashed":                   {func(s *plan.State) { s.Groups[0].Status.Processes[1].Status = v1.ProcessCrashed }, all + "next ledger-1"},
		"an agent that the operator can't reach":      {func(s *plan.State) { s.Groups[0].Status.Processes[1].Reason = v1.ProcessUnreachable }, all + "next ledger-1"},
		"a pod that is being deleted":                 {func(s *plan.State) { onlyCoordinator(s); s.Pods[1].DeletionTimestamp = new(metav1.Now()) }, last + "member ledger-1 of group ledger is being deleted"},
		"a new pod that isn't ready":                  {func(s *plan.State) { onlyCoordinator(s); s.Pods[1].Status.Conditions = nil }, last + "member ledger-1 of group ledger isn't ready"},
		"a group that isn't available":                {func(s *plan.State) { s.Groups[0].Status.Conditions = nil }, all + "group ledger isn't Available; for the reason, run: kubectl conclave status ledger -n bank"},
		"a group that was created again":              {func(s *plan.State) { s.Groups[0].Status = v1.ElectionGroupStatus{} }, "ledger-0, ledger-1, ledger-2: the operator has not reconciled group ledger yet"},
		"applications of followers without a session": {func(s *plan.State) { s.Groups[0].Status.Processes[1].Reason = v1.ProcessNotEligible }, all + "next ledger-0"},
		"nobody can take over": {func(s *plan.State) {
			onlyCoordinator(s)
			s.Groups[0].Status.Processes[1].Reason, s.Groups[0].Status.Processes[2].Priority = v1.ProcessNotEligible, 0
		}, last + "no other member of group ledger is ready to take over from ledger-2"},
		"no other member may lead": {func(s *plan.State) {
			s.Groups[0].Status.Processes[1].Priority, s.Groups[0].Status.Processes[2].Priority = 0, 0
		}, "ledger-0, ledger-1, ledger-2 vacates ledger: next ledger-0"},
		"another group of the pods is degraded": {func(s *plan.State) {
			s.Groups = append(s.Groups, *s.Groups[0].DeepCopy())
			s.Groups[1].Name = "mail"
			s.Groups[1].Status.Processes = s.Groups[1].Status.Processes[1:] // without the coordinator
			s.Groups[1].Status.Processes[0].Status = v1.ProcessUnknown
		}, all + "next ledger-1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := state()
			test.change(s)
			if got := describe(s); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestPodsWithoutController(t *testing.T) {
	s := state()
	s.Pods[1].OwnerReferences = nil
	if got := s.Unowned(); len(got) != 1 || got[0] != "ledger-1" {
		t.Errorf("got %v, want ledger-1", got)
	}
}

// TestGroupHasRecovered: the pods of a Deployment get other names, and the member list first
// becomes shorter.
func TestGroupHasRecovered(t *testing.T) {
	s := state()
	step := s.Plan()[0]
	for _, test := range []struct {
		change func()
		want   string
	}{
		{func() { s.Pods[2].DeletionTimestamp = new(metav1.Now()) }, "member ledger-0 of group ledger is being deleted"},
		{func() { s.Pods = s.Pods[:2] }, "member ledger-0 of group ledger has no pod"},
		{func() { s.Groups[0].Status.Processes = s.Groups[0].Status.Processes[:2] }, "group ledger has 2 of 3 members"},
		{func() { s.Pods = append(s.Pods, pod("ledger-x", "agent:2")) }, "group ledger has 2 of 3 members"},
		{func() {
			s.Groups[0].Status.Processes = append(s.Groups[0].Status.Processes, v1.Process{Pod: "ledger-x", Status: v1.ProcessNormal})
		}, ""},
		{func() { s.Groups = nil }, ""},
	} {
		test.change()
		if got := s.Unsettled(&step); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// TestMembersThatCannotVote: the coordinator would lose its majority if another member restarted
// while they don't grant anything.
func TestMembersThatCannotVote(t *testing.T) {
	const waits = "ledger-1, ledger-2 hands over ledger: member ledger-0 of group ledger has restarted and can't vote for another moment"
	const next = "ledger-1, ledger-2 hands over ledger: next ledger-1"
	before := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-d))) }
	running := func(since *metav1.Time) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *since}}
	}
	for name, test := range map[string]struct {
		started, up time.Duration
		change      func(g *v1.ElectionGroup)
		want        string
	}{
		"the agent has just started":         {started: 3 * time.Second, up: time.Hour, want: waits},
		"the agent has just joined":          {started: time.Hour, up: 3 * time.Second, want: waits},
		"the lease and a second have passed": {started: 4 * time.Second, up: 4 * time.Second, want: next},
		"the lease was longer before": {started: 4 * time.Second, up: time.Hour, want: waits, change: func(g *v1.ElectionGroup) {
			g.Status.MemberList = &v1.MemberList{LeaseMillis: 3000, Previous: &v1.PreviousList{LeaseMillis: 6000}}
		}},
		"without a majority": {started: time.Second, up: time.Second, want: next, change: func(g *v1.ElectionGroup) { g.Spec.Safety.Mode = v1.Available }},
	} {
		t.Run(name, func(t *testing.T) {
			s := state()
			g := &s.Groups[0]
			g.Spec.Safety.LeaseMillis = 3000
			s.Pods[2] = pod("ledger-0", "agent:2")
			s.Pods[2].Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: v1.AgentContainer, State: running(before(test.started))}}
			g.Status.Processes[2].Since = before(test.up)
			if test.change != nil {
				test.change(g)
			}
			if got := describe(s); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestPodsOfNoGroupComeBack: a pod that is no member must be back before the next one is
// replaced, or an application that has only such pods would lose all of them.
func TestPodsOfNoGroupComeBack(t *testing.T) {
	s := state()
	s.Groups = nil
	step := s.Plan()[0]
	for _, test := range []struct {
		change func()
		want   string
	}{
		{func() { s.Pods[2].DeletionTimestamp = new(metav1.Now()) }, "StatefulSet ledger has 2 of 3 ready pods"},
		{func() { s.Pods = s.Pods[:2] }, "StatefulSet ledger has 2 of 3 ready pods"},
		{func() { s.Pods = append(s.Pods, pod("ledger-0", "agent:2")); s.Pods[2].Status.Conditions = nil }, "StatefulSet ledger has 2 of 3 ready pods"},
		{func() { s.Pods[2] = pod("ledger-0", "agent:2") }, ""},
	} {
		test.change()
		if got := s.Unsettled(&step); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
