package groupstatus

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
)

// formatConditions formats all conditions that the operator sets.
func formatConditions(status *v1.ElectionGroupStatus) string {
	var text strings.Builder
	for _, of := range []v1.ConditionType{
		v1.ConditionReady, v1.ConditionAvailable, v1.ConditionProgressing, v1.ConditionDegraded, v1.ConditionAgentsConnected,
	} {
		fmt.Fprintf(&text, "%s: %s\n", of, formatCondition(status, of))
	}
	return text.String()
}

func TestConditions(t *testing.T) {
	cases := golden.Open(t, "testdata/conditions.txt")
	for name, c := range map[string]struct {
		members int
		change  func(*harness)
	}{
		"a healthy group": {3, func(*harness) {}},
		"a single member": {1, func(*harness) {}},
		"one member with a priority above 0": {
			3, func(s *harness) { s.List.Members[0].Priority, s.List.Members[1].Priority = 0, 0 },
		},
		"two members in Majority mode":     {2, func(*harness) {}},
		"two members, no witness is ready": {2, func(s *harness) { s.Group.Spec.Witness = v1.WitnessManaged }},
		"two members and a witness":        {2, (*harness).addWitness},
		"a witness on the node of a member": {2, func(s *harness) {
			s.addWitness()
			s.Pods[v1.WitnessPrefix+"0"].Spec.NodeName = "node-b"
		}},
		"two members in Available mode": {2, func(s *harness) { s.setAvailable() }},
		"no pods":                       {3, func(s *harness) { s.deletePods("a", "b", "c") }},
		"pods without an agent": {5, func(s *harness) {
			for _, name := range s.names {
				s.crash(name)
				s.Pods[name].Spec.InitContainers = nil
			}
		}},
		"a pod does not list the group":   {3, func(s *harness) { s.crash("a"); s.Pods["a"].Annotations = nil }},
		"no agent has been contacted yet": {3, (*harness).restartOperator},
		"an election is in progress":      {3, func(s *harness) { s.crash("c"); s.reportCoordinator("", "a", "b") }},
		"no majority is up": {5, func(s *harness) {
			s.reportCoordinator("", s.names...)
			s.crash("c", "d", "e")
		}},
		"no majority is up in Available mode": {5, func(s *harness) {
			s.setAvailable()
			s.reportCoordinator("", s.names...)
			s.crash("c", "d", "e")
		}},
		"all members are ineligible": {3, func(s *harness) {
			s.reportCoordinator("", s.names...)
			for _, name := range s.names {
				s.report(name).Eligible = false
			}
		}},
		"all members are ineligible for the same reason": {3, func(s *harness) {
			s.reportCoordinator("", s.names...)
			for _, name := range s.names {
				s.report(name).Eligible, s.report(name).Ineligible = false, "no session is open"
			}
		}},
		"the members answer too slowly": {3, func(s *harness) {
			s.reportCoordinator("", s.names...)
			s.report("c").TooSlow = &control.TooSlow{RoundTripMicros: 400_900, LimitMicros: 367_000}
			s.report("b").TooSlow = &control.TooSlow{RoundTripMicros: 380_000, LimitMicros: 367_000}
		}},
		"a disconnected member may be eligible": {3, func(s *harness) {
			s.reportCoordinator("", s.names...)
			s.report("a").Eligible, s.report("b").Eligible = false, false
			s.disconnect("c")
		}},
		"only members with priority 0 are up": {3, func(s *harness) {
			s.List.Members[0].Priority, s.List.Members[1].Priority = 0, 0
			s.reportCoordinator("", s.names...)
			s.crash("c")
		}},
		"a member is down":    {3, func(s *harness) { s.crash("a") }},
		"a member has no pod": {3, func(s *harness) { s.deletePods("a") }},
		"the agent of a pod runs, and its application doesn't": {
			3, func(s *harness) { s.Pods["a"].Status.Phase = corev1.PodPending },
		},
		"a pod is pending": {3, func(s *harness) { s.crash("a"); s.Pods["a"].Status.Phase = corev1.PodPending }},
		"a pod is being deleted, and its agent is connected": {3, func(s *harness) { s.terminate("a") }},
		"a pod is being deleted, and its agent is disconnected": {
			3, func(s *harness) { s.crash("a"); s.terminate("a") },
		},
		"a list is being adopted": {3, func(s *harness) { s.beginList(s.List.Members) }},
		"a list needs the vote of a pod on a node that isn't ready": {2, func(s *harness) {
			s.List.Members = s.List.Members[:1]
			s.beginList(s.Group.Spec.Members)
			s.disconnect("a")
			s.Nodes["node-a"].Status.Conditions = nil
		}},
		"a list doesn't need the vote of a pod on a node that isn't ready": {3, func(s *harness) {
			s.beginList(s.List.Members)
			s.disconnect("a", "b")
			s.Nodes["node-a"].Status.Conditions = nil
		}},
		"a finalizer cannot be written": {
			3, func(s *harness) { s.Errors.Publish = "write the finalizer of pod a: denied by a policy" },
		},
		"the Service cannot be written": {3, func(s *harness) { s.Errors.Routing = "write Service front: denied" }},
		"the Service has another owner": {3, func(s *harness) { s.ServiceProblem = serviceConflict }},
		"the Service names a port that the pod of the coordinator lacks": {3, func(s *harness) {
			s.Group.Spec.Service = &v1.CoordinatorService{Name: "front", Ports: []v1.ServicePort{{Port: 80, TargetPort: new(
				intstr.FromString("http"))}}}
		}},
		"the selector matches too many pods, and there is a list": {3, func(s *harness) {
			s.Problem = &membership.Problem{Reason: v1.ReasonTooManyMembers, Message: "too many"}
		}},
		"the selector matches no pods, and there is no list": {3, func(s *harness) {
			s.List, s.Agents = nil, nil
			s.Problem = &membership.Problem{Reason: v1.ReasonNoMembers, Message: "no members"}
		}},
		"a selected pod has no agent, and there is no list": {3, func(s *harness) {
			s.useSelector()
			s.List, s.Agents = nil, nil
			s.Pods["a"].Spec.InitContainers = nil
		}},
		"a selected pod is joining":   {3, func(s *harness) { s.useSelector("d") }},
		"a selected pod has no agent": {3, func(s *harness) { s.useSelector("d"); s.Pods["d"].Spec.InitContainers = nil }},
		"a selected pod gets no certificate": {3, func(s *harness) {
			s.useSelector("d")
			s.Agents["d"] = facts.Agent{Problem: facts.NoCertificate + "tokenreviews is forbidden"}
		}},
		"a selected pod gets no certificate, and a member is unreachable": {3, func(s *harness) {
			s.useSelector("d")
			s.Agents["d"] = facts.Agent{Problem: facts.NoCertificate + "tokenreviews is forbidden"}
			s.Agents["a"] = facts.Agent{Problem: "i/o timeout"}
		}},
		"agents have different lists of the same version": {5, func(s *harness) { s.report("b").Digest = "other" }},
		"agents have lists of different versions": {3, func(s *harness) {
			s.beginList(s.List.Members)
			s.report("b").Version, s.report("b").Digest = 2, "other"
		}},
		"one of five reports another list": {5, func(s *harness) { s.report("b").Version = 2 }},
		"one of five names another coordinator": {5, func(s *harness) {
			s.reportCoordinator("a", "a")
			s.evaluate()
			s.setTime(time.Minute)
		}},
		"one of five names another coordinator, after a restart of the operator": {5, func(s *harness) {
			s.reportCoordinator("a", "a")
			s.evaluate()
			s.setTime(time.Minute)
			s.evaluate()
			s.restartOperator()
		}},
		"one of five names another coordinator, in Available mode": {5, func(s *harness) {
			s.setAvailable()
			s.reportCoordinator("a", "a")
			s.evaluate()
			s.setTime(time.Minute)
		}},
		"two of five have older settings": {5, func(s *harness) {
			s.Group.Generation = 2
			for _, name := range s.names[2:] {
				s.report(name).Generation = 2
			}
		}},
		"an agent has newer settings than the operator": {3, func(s *harness) { s.report("a").Generation = 2 }},
		"two coordinators in Available mode": {4, func(s *harness) {
			s.setAvailable()
			s.reportCoordinator("a", "a", "b")
			s.reportCoordinator("d", "c", "d")
			s.evaluate()
			s.setTime(time.Minute)
		}},
		"no agent is connected":           {3, func(s *harness) { s.disconnect("a", "b", "c") }},
		"after a restart of the operator": {3, func(s *harness) { s.evaluate(); s.restartOperator() }},
		"after a restart of the operator, one member down": {
			3, func(s *harness) { s.crash("a"); s.evaluate(); s.restartOperator() },
		},
		"agents have older settings": {3, func(s *harness) { s.Group.Generation = 2; s.report("a").Generation = 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(c.members)
			c.change(s)
			r := s.evaluate()
			cases.Compare(t, name, formatConditions(&r.Status))
		})
	}
}

// addWitness adds the operator's witness to the list.
func (s *harness) addWitness() {
	const name = v1.WitnessPrefix + "0"
	s.Group.Spec.Witness = v1.WitnessManaged
	s.List.Members = append(slices.Clone(s.List.Members), v1.Member{Pod: name})
	s.createPod(name)
	for _, pod := range append(s.names, name) {
		s.connect(pod)
	}
	s.reportCoordinator("b", append(s.names, name)...)
}

// useSelector replaces the declared members by a selector that matches the same pods, and others, which are created.
func (s *harness) useSelector(others ...string) {
	for _, name := range others {
		s.createPod(name)
	}
	s.Group.Spec.Members = nil
	s.Group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "ledger"}}
	s.Group.Spec.PriorityFrom = &v1.PriorityFrom{Annotation: v1.AnnotationPriority}
	for name := range s.Pods {
		s.Pods[name].Labels["app"] = "ledger"
	}
}

// TestVersionsOfAgents: an agent that disconnects keeps its version, so that the status doesn't change.
func TestVersionsOfAgents(t *testing.T) {
	s := newHarness(3)
	for _, step := range []struct {
		change func()
		rows   string
	}{
		{func() {}, ",,"},
		{func() { s.setVersion("v1", "a", "b", "c") }, "v1,v1,v1"},
		{func() { s.setVersion("v2", "a") }, "v1,v1,v2"},
		{func() { s.setVersion("", "a") }, "v1,v1,v2"},
	} {
		step.change()
		r := s.evaluate()
		var rows []string
		for _, row := range r.Status.Processes {
			rows = append(rows, row.AgentVersion)
		}
		expect.Equalf(t, strings.Join(rows, ","), step.rows, "versions")
	}
}

func (s *harness) setVersion(version string, pods ...string) {
	for _, pod := range pods {
		agent := s.Agents[pod]
		agent.Version = version
		s.Agents[pod] = agent
	}
}

// TestOtherConditionsRemain tests conditions that another controller has set.
func TestOtherConditionsRemain(t *testing.T) {
	s := newHarness(3)
	s.Group.Status.Conditions = []metav1.Condition{
		{Type: "example.org/Approved", Status: metav1.ConditionTrue, Reason: "Yes"},
	}
	r := s.evaluate()
	if len(r.Status.Conditions) != 6 || r.Status.Conditions[0].Type != "example.org/Approved" {
		t.Errorf("got conditions %+v", r.Status.Conditions)
	}
}

var serviceConflict = &membership.Problem{Reason: v1.ReasonServiceConflict, Message: "Service front has another owner"}

// TestReadyHasTheMostImportantProblem resolves one problem after the other.
func TestReadyHasTheMostImportantProblem(t *testing.T) {
	s := newHarness(3)
	s.Problem = &membership.Problem{Reason: v1.ReasonInvalidMembers, Message: "invalid"}
	s.Errors.Publish, s.Errors.Routing = "write it", "write another"
	s.ServiceProblem = serviceConflict
	s.beginList(s.List.Members[:1:1])
	s.List.Members = append(s.List.Members, v1.Member{Pod: "x", Priority: 7})
	s.report("b").Digest = "other"
	s.disconnect("a", "b", "c")
	for _, step := range []struct {
		want    v1.Reason
		resolve func()
	}{
		{v1.ReasonInvalidMembers, func() { s.Problem = nil }},
		{v1.ReasonWriteFailed, func() { s.Errors.Publish = "" }},
		{v1.ReasonNoReports, func() {
			for name, agent := range s.Agents {
				s.Agents[name] = facts.Agent{Connected: true, Report: agent.Report}
			}
			s.reportCoordinator("", s.names...)
		}},
		{v1.ReasonListsDiffer, func() { s.report("b").Digest = "d" }},
		{v1.ReasonNoMajority, func() { s.elect("a"); s.Group.Generation = 2 }},
		{v1.ReasonSettingsDiffer, func() { s.Group.Generation = 1 }},
		{v1.ReasonAdopting, func() { s.List.State = v1.ListSettled; s.report("a").Version = 2 }},
		{v1.ReasonServiceConflict, func() { s.ServiceProblem = nil }},
		{v1.ReasonWriteFailed, func() { s.Errors.Routing = "" }},
		{v1.ReasonMembersDown, func() { s.List.Members = s.List.Members[:1] }},
		{v1.ReasonNoFailover, func() {
			s.List.Members = s.Group.Spec.Members
			s.report("b").Version, s.report("c").Version = 2, 2
		}},
		{v1.ReasonHealthy, nil},
	} {
		r := s.evaluate()
		if got := r.Status.Conditions[0]; got.Reason != string(step.want) {
			t.Fatalf("got reason %s, want %s: %s", got.Reason, step.want, got.Message)
		}
		if step.resolve != nil {
			step.resolve()
		}
	}
}

// A group is stalled only by what neither time nor a rollout resolves, and has the condition only then.
func TestStalled(t *testing.T) {
	problem := func(reason v1.Reason) func(*harness) {
		return func(s *harness) { s.Problem = &membership.Problem{Reason: reason, Message: "why"} }
	}
	for name, c := range map[string]struct {
		change func(*harness)
		want   v1.Reason
	}{
		"healthy":                             {func(*harness) {}, ""},
		"a member is down":                    {func(s *harness) { s.crash("a") }, ""},
		"a status that is behind":             {problem(v1.ReasonStatusBehind), v1.ReasonStatusBehind},
		"too many members":                    {problem(v1.ReasonTooManyMembers), v1.ReasonTooManyMembers},
		"too many groups":                     {problem(v1.ReasonTooManyGroups), v1.ReasonTooManyGroups},
		"no pods yet":                         {problem(v1.ReasonNoMembers), ""},
		"invalid pods of a group with a list": {problem(v1.ReasonInvalidMembers), ""},
		"invalid pods of a new group": {
			func(s *harness) { problem(v1.ReasonInvalidMembers)(s); s.List = nil }, v1.ReasonInvalidMembers,
		},
		"a Service of another owner": {func(s *harness) { s.ServiceProblem = serviceConflict }, v1.ReasonServiceConflict},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(3)
			c.change(s)
			status := s.evaluate().Status
			found := meta.FindStatusCondition(status.Conditions, string(v1.ConditionStalled))
			switch {
			case c.want == "" && found != nil:
				t.Errorf("got %+v, want none", found)
			case c.want != "" &&
				(found == nil || found.Reason != string(c.want) || found.Status != "True" || found.Message == ""):
				t.Errorf("got %+v, want True with the reason %s", found, c.want)
			}
			s.Problem, s.ServiceProblem = nil, nil
			s.Group.Status = status
			if found := meta.FindStatusCondition(s.evaluate().Status.Conditions, string(v1.ConditionStalled)); found != nil {
				t.Errorf("after it was resolved: got %+v, want none", found)
			}
		})
	}
}
