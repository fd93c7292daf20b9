package groupstatus

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

func TestTable(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*harness)
		table  string
	}{
		"all is well": {
			func(*harness) {}, "c Coordinator, b Normal, a Normal",
		},
		"a crashed pod is what the others say": {
			func(s *harness) { s.crash("a") }, "c Coordinator, b Normal, a Crashed (Unreachable)",
		},
		"an agent that the operator can't reach is Normal, if the others say so": {
			func(s *harness) { s.disconnect("a") }, "c Coordinator, b Normal, a Normal (Unreachable)",
		},
		"the operator doesn't suppose that a pod without an object has crashed": {
			func(s *harness) { delete(s.Pods, "a"); delete(s.Agents, "a") }, "c Coordinator, b Normal, a Normal (PodMissing)",
		},
		"a pod that is gone": {
			func(s *harness) { s.deletePod("a") }, "c Coordinator, b Normal, a Crashed (PodMissing)",
		},
		"a pod that has ended is as good as gone": {
			func(s *harness) { s.crash("a"); s.Pods["a"].Status.Phase = corev1.PodFailed },
			"c Coordinator, b Normal, a Crashed (PodMissing)",
		},
		"a pod that is being deleted is up until the others say otherwise": {
			func(s *harness) { s.Pods["a"].DeletionTimestamp = new(metav1.NewTime(noon)) },
			"c Coordinator, b Normal, a Normal (PodTerminating)",
		},
		"a pod that hasn't started": {
			func(s *harness) { s.crash("a"); s.Pods["a"].Status.Phase = corev1.PodPending },
			"c Coordinator, b Normal, a Crashed (PodPending)",
		},
		"a pod without an agent": {
			func(s *harness) { s.crash("a"); s.Pods["a"].Spec.InitContainers = nil },
			"c Coordinator, b Normal, a Crashed (NoAgent)",
		},
		"an ordinary container of the agent's name isn't an agent": {
			func(s *harness) {
				spec := &s.Pods["a"].Spec
				spec.Containers, spec.InitContainers = spec.InitContainers, nil
			},
			"c Coordinator, b Normal, a Normal (NoAgent)",
		},
		"a pod whose agent isn't told of the group": {
			func(s *harness) { s.crash("a"); s.Pods["a"].Annotations[v1.AnnotationGroups] = "ledger2,other" },
			"c Coordinator, b Normal, a Crashed (NotInGroup)",
		},
		"a pod names the group since its agent runs": {
			func(s *harness) { s.crash("a"); s.Agents["a"] = AgentState{Connected: true, NotInGroup: true} },
			"c Coordinator, b Normal, a Crashed (NotInGroup)",
		},
		"an application keeps a member from standing": {
			func(s *harness) { s.report("a").Eligible = false }, "c Coordinator, b Normal, a Normal (NotEligible)",
		},
		"a member with priority 0 never stands": {
			func(s *harness) { s.List.Members[0].Priority = 0; s.report("a").Eligible = false },
			"c Coordinator, b Normal, a Normal",
		},
		"the coordinator takes a member for dead that follows it": {
			func(s *harness) { s.reportStatus("Crashed", "a", "c") }, "c Coordinator, b Normal, a Unknown (Disputed)",
		},
		"a follower is a moment behind": {
			func(s *harness) { s.reportStatus("Crashed", "a", "b") }, "c Coordinator, b Normal, a Normal",
		},
		"followers contradict each other while the coordinator can't be heard": {
			func(s *harness) {
				s.disconnect("a", "c")
				s.reportStatus("Crashed", "a", "b")
				s.createPod("d")
				s.List.Members = append(s.List.Members, v1.Member{Pod: "d", Priority: 5})
				s.connect("d")
				s.reportCoordinator("c", "d")
			},
			"c Coordinator (Unreachable), b Normal, a Unknown (Unreachable), d Normal",
		},
		"a member that has just come back isn't disputed": {
			func(s *harness) { s.reportStatus("Crashed", "a", "b", "c"); s.connect("a") }, "c Coordinator, b Normal, a Crashed",
		},
		"nobody leads, and the halves take each other for dead": {
			func(s *harness) {
				s.reportCoordinator("", "a", "b", "c")
				s.crash("c")
				s.reportStatus("Crashed", "a", "b")
				s.reportStatus("Crashed", "b", "a")
			},
			"c Crashed (Unreachable), b Unknown (Disputed), a Unknown (Disputed)",
		},
		"nobody leads, and who was never connected hasn't been seen": {
			func(s *harness) {
				s.deletePod("c")
				s.deletePod("b")
				s.connect("a")
				s.reportStatus("Normal", "b", "a")
				for i := range s.report("a").Processes {
					s.report("a").Processes[i].Connected = s.report("a").Processes[i].Name == "a"
				}
			},
			"c Unknown (PodMissing), b Unknown (PodMissing), a Normal",
		},
		"nobody can be heard": {
			func(s *harness) { s.disconnect("a", "b", "c") },
			"c Unknown (Unreachable), b Unknown (Unreachable), a Unknown (Unreachable)",
		},
		"an agent of an earlier group of the name has no say": {
			func(s *harness) {
				s.report("b").UID, s.report("c").UID = "old", "old"
				s.reportStatus("Crashed", "c", "a")
				s.reportCoordinator("", "a")
			},
			"c Crashed, b Normal, a Normal",
		},
		"an agent that goes by an older list than the one in force has no say": {
			func(s *harness) {
				s.List.Version = 2
				s.report("a").Version, s.report("b").Version = 2, 2
				s.reportStatus("Crashed", "a", "c")
			},
			"c Coordinator, b Normal, a Normal",
		},
		"who isn't a member has no say": {
			func(s *harness) {
				s.createPod("x")
				s.connect("x")
				s.reportCoordinator("a", "x")
				s.report("x").Term = s.term + 1
			},
			"c Coordinator, b Normal, a Normal",
		},
		"a term that no clock has come to is nonsense": {
			func(s *harness) { s.report("a").Coordinator, s.report("a").Term = "a", firstTerm+2*24*3600*10 },
			"c Coordinator, b Normal, a Normal",
		},
		"a term beyond all numbers is nonsense, too": {
			func(s *harness) { s.report("a").Coordinator, s.report("a").Term = "a", 1<<63 },
			"c Coordinator, b Normal, a Normal",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newHarness(3)
			c.change(s)
			r := s.evaluate()
			expect(t, "table", formatTable(&r.Status), c.table)
			for _, row := range r.Status.Processes {
				if len(row.Message) > 256 || row.Reason != "" && row.Message == "" || row.Since == nil {
					t.Errorf("the row %+v", row)
				}
			}
		})
	}
}

// TestMessagesFit where the schema bounds them, with a name as long as can be.
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
		for _, row := range Evaluate(s.Facts).Status.Processes {
			if len(row.Message) > 256 {
				t.Errorf("%d characters: %s", len(row.Message), row.Message)
			}
		}
	}
}

// TestUnreachableSaysWhatToDo and not what differs from one attempt to the next.
func TestUnreachableSaysWhatToDo(t *testing.T) {
	s := newHarness(3)
	s.disconnect("a")
	first := s.evaluate().Status.Processes[2].Message
	s.Agents["a"] = AgentState{Problem: "read tcp 10.1.1.1:40001->10.0.0.1:7375: i/o timeout"}
	expect(t, "message", s.evaluate().Status.Processes[2].Message, first)
	s.Agents["a"] = AgentState{Problem: "tls: failed to verify certificate: x509: certificate has expired: current time 12:00"}
	if other := s.evaluate().Status.Processes[2].Message; other == first || !strings.Contains(other, "certificate") {
		t.Errorf("an agent with a bad certificate: %s", other)
	}
}

func TestSinceIsKeptWhileTheStatusIs(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.setTime(10 * time.Second)
	s.disconnect("a")
	s.reportStatus("Crashed", "b", "c")
	s.disconnect("b")
	rows := s.evaluate().Status.Processes
	for i, want := range []time.Duration{0, 10 * time.Second, 0} {
		if got := rows[i].Since.Sub(noon); got != want {
			t.Errorf("%s is %s since %v, want %v", rows[i].Pod, rows[i].Status, got, want)
		}
	}
}
