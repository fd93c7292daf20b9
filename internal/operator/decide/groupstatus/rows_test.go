package groupstatus

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
)

func TestTable(t *testing.T) {
	cases := golden.Open(t, "testdata/rows.txt")
	for name, change := range map[string]func(*harness){
		"healthy":                   func(*harness) {},
		"the others report a crash": func(s *harness) { s.crash("a") },
		"the operator cannot reach an agent, and the others report it as Normal": func(s *harness) { s.disconnect("a") },
		"a pod does not exist, and the others report it as Normal": func(s *harness) {
			delete(s.Pods, "a")
			delete(s.Agents, "a")
		},
		"a pod does not exist": func(s *harness) { s.deletePods("a") },
		"a pod has finished":   func(s *harness) { s.crash("a"); s.Pods["a"].Status.Phase = corev1.PodFailed },
		"a pod is being deleted, and the others report it as Normal": func(s *harness) { s.terminate("a") },
		"a pod that is being deleted has finished": func(s *harness) {
			s.crash("a")
			s.Pods["a"].Status.Phase = corev1.PodSucceeded
			s.terminate("a")
		},
		"a pod is pending": func(s *harness) { s.crash("a"); s.Pods["a"].Status.Phase = corev1.PodPending },
		"a pod was replaced, and the others report its predecessor as Normal": func(s *harness) {
			s.disconnect("a")
			s.Pods["a"].Status.Phase = corev1.PodPending
		},
		"only the application of a pod has not started": func(s *harness) {
			s.disconnect("a")
			running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			s.Pods["a"].Status = corev1.PodStatus{
				Phase:                 corev1.PodPending,
				InitContainerStatuses: []corev1.ContainerStatus{{Name: v1.AgentContainer, State: running}},
			}
		},
		"a pod has no agent": func(s *harness) { s.crash("a"); s.Pods["a"].Spec.InitContainers = nil },
		"an ordinary container has the agent's name": func(s *harness) {
			spec := &s.Pods["a"].Spec
			spec.Containers, spec.InitContainers = spec.InitContainers, nil
		},
		"a pod does not list the group": func(s *harness) {
			s.crash("a")
			s.Pods["a"].Annotations[v1.AnnotationGroups] = "ledger2,other"
		},
		"an agent is joining a group that selects its pod": func(s *harness) {
			s.crash("a")
			s.Pods["a"].Annotations = map[string]string{v1.AnnotationSelectedBy: ""}
		},
		"a pod lists the group only since its agent runs": func(s *harness) {
			s.crash("a")
			s.Agents["a"] = facts.Agent{Connected: true, NotInGroup: true}
		},
		"an application makes a member ineligible": func(s *harness) { s.report("a").Eligible = false },
		"a member is held back": func(s *harness) {
			s.report("b").ShortTenures, s.report("b").PenaltySeconds = 3, 120
		},
		"the coordinator hands over to no higher member": func(s *harness) {
			s.reportCoordinator("b", "a", "b", "c")
			s.report("b").PauseSeconds = 60
		},
		"a member with priority 0 is always ineligible": func(s *harness) {
			s.List.Members[0].Priority = 0
			s.report("a").Eligible = false
		},
		"the coordinator reports a connected follower as crashed": func(s *harness) { s.reportStatus("Crashed", "a", "c") },
		"a follower reports another one as crashed":               func(s *harness) { s.reportStatus("Crashed", "a", "b") },
		"followers contradict each other while the coordinator is disconnected": func(s *harness) {
			s.disconnect("a", "c")
			s.reportStatus("Crashed", "a", "b")
			s.createPod("d")
			s.List.Members = append(s.List.Members, v1.Member{Pod: "d", Priority: 5})
			s.connect("d")
			s.reportCoordinator("c", "d")
		},
		"a member has just recovered": func(s *harness) { s.reportStatus("Crashed", "a", "b", "c"); s.connect("a") },
		"without a coordinator, members report each other as crashed": func(s *harness) {
			s.reportCoordinator("", "a", "b", "c")
			s.crash("c")
			s.reportStatus("Crashed", "a", "b")
			s.reportStatus("Crashed", "b", "a")
		},
		"without a coordinator, a member that was never connected is unknown": func(s *harness) {
			s.deletePods("c", "b")
			s.connect("a")
			s.reportStatus("Normal", "b", "a")
			for i := range s.report("a").Processes {
				s.report("a").Processes[i].Connected = s.report("a").Processes[i].Name == "a"
			}
		},
		"no agent is connected": func(s *harness) { s.disconnect("a", "b", "c") },
		"an agent in an earlier group of this name does not count": func(s *harness) {
			s.report("b").UID, s.report("c").UID = "old", "old"
			s.reportStatus("Crashed", "c", "a")
			s.reportCoordinator("", "a")
		},
		"an agent with an older list than the one in force does not count": func(s *harness) {
			s.List.Version = 2
			s.report("a").Version, s.report("b").Version = 2, 2
			s.reportStatus("Crashed", "a", "c")
		},
		"a pod that is not a member does not count": func(s *harness) {
			s.createPod("x")
			s.connect("x")
			s.reportCoordinator("a", "x")
			s.report("x").Term = s.term + 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(3)
			change(s)
			reduced := s.withoutUsualRows()
			r := s.evaluate()
			cases.Compare(t, name, formatTable(&r.Status))
			short := Evaluate(&reduced, &s.Plan).Status
			expect.Equalf(t, formatTable(&short), formatTable(&r.Status), "table from reports without their usual rows")
			for _, row := range r.Status.Processes {
				if len(row.Message) > 256 || row.Reason != "" && row.Message == "" || row.Since == nil {
					t.Errorf("got row %+v", row)
				}
			}
		})
	}
}

// TestMessagesFit tests the limit of the schema with a group name of the maximum length.
func TestMessagesFit(t *testing.T) {
	s := newHarness(3)
	s.Group.Name = strings.Repeat("g", 63)
	pods := []func(*corev1.Pod){
		func(p *corev1.Pod) { p.Spec.InitContainers = nil },
		func(p *corev1.Pod) { p.Annotations = nil },
		func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending },
		func(p *corev1.Pod) { p.Status.Phase, p.Spec.NodeName = corev1.PodPending, "" },
		func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(noon)) },
	}
	for _, change := range pods {
		change(s.createPod("a"))
		for _, row := range Evaluate(&s.Facts, &s.Plan).Status.Processes {
			expect.AtMostf(t, len(row.Message), 256, "characters")
		}
	}
}

// TestNotEligibleMessage: the message has the one reason, and since when that is so.
func TestNotEligibleMessage(t *testing.T) {
	cases := golden.Open(t, "testdata/noteligible.txt")
	for name, change := range map[string]func(s *harness, own *control.Report){
		"no session": func(_ *harness, own *control.Report) { own.Ineligible = "no session is open" },
		"a cordoned node": func(s *harness, own *control.Report) {
			own.Excluded, own.Ineligible = true, "the operator has excluded it"
			s.Nodes["node-a"].Spec.Unschedulable = true
		},
		"an evacuated node": func(s *harness, own *control.Report) {
			own.Excluded, own.Ineligible = true, "the operator has excluded it"
			s.Nodes["node-a"].Annotations = map[string]string{v1.AnnotationEvacuateUntil: "2026-06-01T15:00:00+02:00"}
		},
		"a node that was cordoned a moment ago": func(_ *harness, own *control.Report) {
			own.Excluded, own.Ineligible = true, "the operator has excluded it"
		},
		"unknown": func(*harness, *control.Report) {},
	} {
		s := newHarness(3)
		own := s.report("a")
		own.Eligible, own.IneligibleSince = false, noon.Add(-22*time.Minute-48*time.Second).In(time.FixedZone("", 3600))
		change(s, own)
		cases.Compare(t, name, s.evaluate().Status.Processes[2].Message)
	}
}

// TestUnreachableMessage tests that the message has the solution, and nothing that
// differs from one attempt to the next.
func TestUnreachableMessage(t *testing.T) {
	s := newHarness(3)
	s.disconnect("a")
	first := s.evaluate().Status.Processes[2].Message
	s.Agents["a"] = facts.Agent{Problem: "read tcp 10.1.1.1:40001->10.0.0.1:7375: i/o timeout"}
	expect.Equalf(t, s.evaluate().Status.Processes[2].Message, first, "message")
	s.reportStatus("Crashed", "a", "b", "c")
	if crashed := s.evaluate().Status.Processes[2].Message; !strings.HasPrefix(crashed,
		"The agent has ended, or its node is unreachable") {
		t.Errorf("the other agents can't reach it, either: got message %q", crashed)
	}
	s.Agents["a"] = facts.Agent{
		Problem: "tls: failed to verify certificate: x509: certificate has expired: current time 12:00",
	}
	if other := s.evaluate().Status.Processes[2].Message; other == first || !strings.Contains(other, "certificate") {
		t.Errorf("an invalid certificate: got message %q", other)
	}
	s.Agents["a"] = facts.Agent{Problem: facts.NoCertificate + "tokenreviews is forbidden"}
	row := s.evaluate().Status.Processes[2]
	expect.Equalf(t, string(row.Reason), "NoCertificate", "reason")
	expect.Equalf(t, row.Message, "The agent has no certificate: tokenreviews is forbidden", "message")
}

func TestSinceRemainsWithTheStatus(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.setTime(10 * time.Second)
	s.disconnect("a")
	s.reportStatus("Crashed", "b", "c")
	s.disconnect("b")
	rows := s.evaluate().Status.Processes
	for i, want := range []time.Duration{0, 10 * time.Second, 0} {
		expect.Equalf(t, rows[i].Since.Sub(noon), want, "%s is %s: since", rows[i].Pod, rows[i].Status)
	}
}

func TestRowsHaveNodeAndZone(t *testing.T) {
	cases := golden.Open(t, "testdata/places.txt")
	for name, change := range map[string]func(*harness){
		"a node without a zone":   func(*harness) {},
		"a node with a zone":      func(s *harness) { s.setZone("a", "eu-1") },
		"the node can't be read":  func(s *harness) { clear(s.Nodes) },
		"the pod isn't scheduled": func(s *harness) { s.setZone("a", "eu-1"); s.Pods["a"].Spec.NodeName = "" },
		"the pod has finished":    func(s *harness) { s.Pods["a"].Status.Phase = corev1.PodFailed },
		"the pod is gone":         func(s *harness) { s.evaluate(); s.setZone("a", "eu-1"); s.deletePods("a") },
		"the pod moved": func(s *harness) {
			s.evaluate()
			s.setZone("b", "eu-2")
			s.Pods["a"].Spec.NodeName = "node-b"
		},
		"the longest names":         func(s *harness) { s.move("a", strings.Repeat("n", 253), strings.Repeat("Z", 63)) },
		"a node's name is too long": func(s *harness) { s.move("a", strings.Repeat("n", 254), "eu-1") },
		"a zone's name is too long": func(s *harness) { s.move("a", "node", strings.Repeat("z", 64)) },
		"a node is no name":         func(s *harness) { s.move("a", "node\x1b[2J", "eu-1") },
		"a zone is no name":         func(s *harness) { s.move("a", "node", "eu\n1") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(3)
			change(s)
			row := s.evaluate().Status.Processes[2]
			expect.Equalf(t, row.Pod, "a", "pod")
			cases.Compare(t, name, fmt.Sprintf("node %q, zone %q", row.Node, row.Zone))
		})
	}
}

// TestPodMissingMessage: a list doesn't become empty.
func TestPodMissingMessage(t *testing.T) {
	s := newHarness(3)
	s.deletePods("a")
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "create it, or remove it from spec.members"},
		{func() { s.useSelector() }, "the member leaves the list unless the pod is recreated soon"},
		{
			func() { s.Problem = &membership.Problem{Reason: v1.ReasonNoMembers} },
			"the member remains in the list while the group selects no pods",
		},
	} {
		step.change()
		expect.Equalf(t, s.evaluate().Status.Processes[2].Message, noPod+step.want, "message")
	}
}

// withoutUsualRows returns the facts with reports that leave out what is usual, as those of agents do.
func (s *harness) withoutUsualRows() facts.Facts {
	reduced := s.Facts
	reduced.Agents = maps.Clone(s.Agents)
	for name, agent := range s.Agents {
		if agent.Report != nil {
			agent.Report = new(agent.Report.WithoutUsualRows())
			reduced.Agents[name] = agent
		}
	}
	return reduced
}
