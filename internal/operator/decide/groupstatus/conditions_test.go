package groupstatus

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// wantConditions has the conditions to check; "" is not checked.
type wantConditions struct{ ready, available, connected string }

func (w wantConditions) check(t *testing.T, status *v1.ElectionGroupStatus) {
	t.Helper()
	for _, c := range []struct {
		of   v1.ConditionType
		want string
	}{
		{v1.ConditionReady, w.ready},
		{v1.ConditionAvailable, w.available},
		{v1.ConditionAgentsConnected, w.connected},
	} {
		if c.want != "" {
			expect(t, string(c.of), formatCondition(status, c.of), c.want)
		}
	}
}

func TestConditions(t *testing.T) {
	for name, c := range map[string]struct {
		members int
		change  func(*harness)
		want    wantConditions
	}{
		"a healthy group": {
			3, func(*harness) {},
			wantConditions{
				"True Healthy: The group is healthy", "True Elected: The agents agree on the coordinator",
				"True Connected: The agent of each member is connected",
			},
		},
		"a single member": {
			1, func(*harness) {},
			wantConditions{ready: "True NoFailover: The group is healthy, but no other member can take over: there is a single member"},
		},
		"one member with a priority above 0": {
			3, func(s *harness) { s.List.Members[0].Priority, s.List.Members[1].Priority = 0, 0 },
			wantConditions{ready: "True NoFailover: The group is healthy, but no other member can take over: only one member has a priority above 0"},
		},
		"two members in Majority mode": {
			2, func(*harness) {},
			wantConditions{ready: "True NoFailover: The group is healthy, but no other member can take over: " +
				"the majority of two members is two; add a third member, which may have priority 0"},
		},
		"two members in Available mode": {
			2, func(s *harness) { s.Group.Spec.Safety.Mode = v1.Available }, wantConditions{ready: "True Healthy: The group is healthy"},
		},
		"no pods": {
			3, func(s *harness) { s.deletePod("a"); s.deletePod("b"); s.deletePod("c") },
			wantConditions{
				"Unknown NoReports: Members have no pods: create a, b and c, or remove them from spec.members",
				"Unknown NoReports: Members have no pods: create a, b and c, or remove them from spec.members",
				"False PodsMissing: Members have no pods: create a, b and c, or remove them from spec.members",
			},
		},
		"pods without an agent": {
			5, func(s *harness) {
				for _, name := range s.names {
					s.crash(name)
					s.Pods[name].Spec.InitContainers = nil
				}
			},
			wantConditions{
				ready: "Unknown NoReports: a, b, c and 2 more run without an agent: add the label conclave.dev/agent: enabled " +
					"to the pod template, and recreate the pods",
				connected: "False NoAgent: a, b, c and 2 more run without an agent: add the label conclave.dev/agent: enabled " +
					"to the pod template, and recreate the pods",
			},
		},
		"a pod does not list the group": {
			3, func(s *harness) { s.crash("a"); s.Pods["a"].Annotations = nil },
			wantConditions{connected: "False NoAgent: a runs with an agent that is not part of the group: see status.processes"},
		},
		"no agent has been contacted yet": {
			3, (*harness).restartOperator,
			wantConditions{
				"Unknown NoReports: No agent that uses the current member list is connected",
				"Unknown NoReports: No agent that uses the current member list is connected",
				"Unknown NoReports: The operator has not contacted every agent yet",
			},
		},
		"an election is in progress": {
			3, func(s *harness) { s.crash("c"); s.reportCoordinator("", "a", "b") },
			wantConditions{
				ready:     "False Electing: There is no coordinator. An election is in progress",
				available: "False Electing: There is no coordinator. An election is in progress",
			},
		},
		"no majority is up": {
			5, func(s *harness) { s.reportCoordinator("", s.names...); s.crash("c"); s.crash("d"); s.crash("e") },
			wantConditions{
				ready:     "False NoMajority: There is no coordinator. 2 of 5 members are up, and a coordinator needs 3",
				available: "False NoMajority: There is no coordinator. 2 of 5 members are up, and a coordinator needs 3",
			},
		},
		"no majority is up in Available mode": {
			5, func(s *harness) {
				s.Group.Spec.Safety.Mode = v1.Available
				s.reportCoordinator("", s.names...)
				s.crash("c")
				s.crash("d")
				s.crash("e")
			},
			wantConditions{available: "False Electing: There is no coordinator. An election is in progress"},
		},
		"all members are ineligible": {
			3, func(s *harness) {
				s.reportCoordinator("", s.names...)
				for _, name := range s.names {
					s.report(name).Eligible = false
				}
			},
			wantConditions{available: "False NoEligibleMember: There is no coordinator. No live member is eligible: see status.processes for the reasons of a, b and c"},
		},
		"all members are ineligible for the same reason": {
			3, func(s *harness) {
				s.reportCoordinator("", s.names...)
				for _, name := range s.names {
					s.report(name).Eligible, s.report(name).Ineligible = false, "no session is open"
				}
			},
			wantConditions{available: "False NoEligibleMember: There is no coordinator. No live member is eligible (a, b and c): no session is open"},
		},
		"the members answer too slowly": {
			3, func(s *harness) {
				s.reportCoordinator("", s.names...)
				s.report("c").TooSlow = &control.TooSlow{RoundTripMicros: 400_900, LimitMicros: 367_000}
				s.report("b").TooSlow = &control.TooSlow{RoundTripMicros: 380_000, LimitMicros: 367_000}
			},
			wantConditions{
				available: "False MembersTooSlow: There is no coordinator. The members answer after 380 ms, and a coordinator could renew its lease only if they answered within 367 ms: " +
					"increase spec.safety.leaseMillis, or check the network",
			},
		},
		"a disconnected member may be eligible": {
			3, func(s *harness) {
				s.reportCoordinator("", s.names...)
				s.report("a").Eligible, s.report("b").Eligible = false, false
				s.disconnect("c")
			},
			wantConditions{available: "False Electing: There is no coordinator. An election is in progress"},
		},
		"only members with priority 0 are up": {
			3, func(s *harness) {
				s.List.Members[0].Priority, s.List.Members[1].Priority = 0, 0
				s.reportCoordinator("", s.names...)
				s.crash("c")
			},
			wantConditions{available: "False NoEligibleMember: There is no coordinator. No member with a priority above 0 is up"},
		},
		"a member is down": {
			3, func(s *harness) { s.crash("a") },
			wantConditions{
				ready:     "True MembersDown: 1 of 3 members is down: a",
				connected: "False Unreachable: The operator cannot reach the agent of a: see status.processes",
			},
		},
		"a member has no pod": {
			3, func(s *harness) { s.deletePod("a") },
			wantConditions{connected: "False PodsMissing: Members have no pods: create a, or remove it from spec.members"},
		},
		"the agent of a pod runs, and its application doesn't": {
			3, func(s *harness) { s.Pods["a"].Status.Phase = corev1.PodPending },
			wantConditions{connected: "True Connected: The agent of each member is connected"},
		},
		"a pod is pending": {
			3, func(s *harness) { s.crash("a"); s.Pods["a"].Status.Phase = corev1.PodPending },
			wantConditions{connected: "False Unreachable: Pods are not running yet: a"},
		},
		"a pod is being deleted, and its agent is connected": {
			3, func(s *harness) { s.Pods["a"].DeletionTimestamp = new(metav1.NewTime(noon)) },
			wantConditions{connected: "True Connected: The agent of each member is connected"},
		},
		"a pod is being deleted, and its agent is disconnected": {
			3, func(s *harness) { s.crash("a"); s.Pods["a"].DeletionTimestamp = new(metav1.NewTime(noon)) },
			wantConditions{connected: "False Unreachable: The operator cannot reach the agent of a: see status.processes"},
		},
		"a list is being adopted": {
			3, func(s *harness) {
				s.List = &v1.MemberList{
					Version: 2, State: v1.ListAdopting, Members: s.List.Members, Previous: &v1.PreviousList{Members: s.List.Members},
				}
			},
			wantConditions{ready: "False Adopting: The agents are adopting version 2 of the member list"},
		},
		"a finalizer cannot be written": {
			3, func(s *harness) { s.PublishError = "write the finalizer of pod a: denied by a policy" },
			wantConditions{
				ready:     "False WriteFailed: Agents keep their current settings because a write failed: write the finalizer of pod a: denied by a policy",
				available: "True Elected: The agents agree on the coordinator",
			},
		},
		"the Service cannot be written": {
			3, func(s *harness) { s.RoutingError = "write Service front: denied" },
			wantConditions{ready: "False WriteFailed: Traffic may go to the wrong pod because a write failed: write Service front: denied"},
		},
		"the Service has another owner": {
			3, func(s *harness) { s.ServiceProblem = serviceConflict },
			wantConditions{ready: "False ServiceConflict: Service front has another owner"},
		},
		"the Service names a port that the pod of the coordinator lacks": {
			3, func(s *harness) {
				s.Group.Spec.Service = &v1.CoordinatorService{Name: "front", Ports: []v1.ServicePort{{Port: 80, TargetPort: new(intstr.FromString("http"))}}}
			},
			wantConditions{ready: "False PortMissing: No container of pod c has a port with the name http: " +
				"change targetPort in spec.service.ports, or add the port to the pod template"},
		},
		"the selector matches too many pods, and there is a list": {
			3, func(s *harness) {
				s.Problem = &membership.Problem{Reason: v1.ReasonTooManyMembers, Message: "too many"}
			},
			wantConditions{
				ready: "False TooManyMembers: too many", available: "True Elected: The agents agree on the coordinator",
				connected: "True Connected: The agent of each member is connected",
			},
		},
		"the selector matches no pods, and there is no list": {
			3, func(s *harness) {
				s.List, s.Agents = nil, nil
				s.Problem = &membership.Problem{Reason: v1.ReasonNoMembers, Message: "no members"}
			},
			wantConditions{
				"False NoMembers: no members", "False NoMembers: no members", "False NoMembers: no members",
			},
		},
		"a selected pod has no agent, and there is no list": {
			3, func(s *harness) {
				s.useSelector()
				s.List, s.Agents = nil, nil
				s.Pods["a"].Spec.InitContainers = nil
			},
			wantConditions{ready: "Unknown NoReports: a runs without an agent: add the label conclave.dev/agent: enabled " +
				"to the pod template, and recreate the pods"},
		},
		"a selected pod is joining": {
			3, func(s *harness) { s.useSelector(); s.createPod("d").Labels["app"] = "ledger" },
			wantConditions{connected: "True Connected: The agent of each member is connected"},
		},
		"a selected pod has no agent": {
			3, func(s *harness) {
				s.useSelector()
				s.createPod("d").Labels["app"] = "ledger"
				s.Pods["d"].Spec.InitContainers = nil
			},
			wantConditions{connected: "False NoAgent: d runs without an agent: add the label conclave.dev/agent: enabled " +
				"to the pod template, and recreate the pods"},
		},
		"a selected pod gets no certificate": {
			3, func(s *harness) {
				s.useSelector()
				s.createPod("d").Labels["app"] = "ledger"
				s.Agents["d"] = AgentState{Problem: NoCertificate + "tokenreviews is forbidden"}
			},
			wantConditions{connected: "False Unreachable: The operator cannot reach the agent of d: The agent has no certificate: tokenreviews is forbidden"},
		},
		"a selected pod gets no certificate, and a member is unreachable": {
			3, func(s *harness) {
				s.useSelector()
				s.createPod("d").Labels["app"] = "ledger"
				s.Agents["d"] = AgentState{Problem: NoCertificate + "tokenreviews is forbidden"}
				s.Agents["a"] = AgentState{Problem: "i/o timeout"}
			},
			wantConditions{connected: "False Unreachable: The operator cannot reach the agent of a: see status.processes"},
		},
		"agents have different lists of the same version": {
			5, func(s *harness) { s.report("b").Digest = "other" },
			wantConditions{available: "False ListsDiffer: Agents ignore each other because their member lists differ: a, c, d and 1 more have one list of version 1; " +
				"b has one list of version 1; delete the pods of the smaller side"},
		},
		"agents have lists of different versions": {
			3, func(s *harness) {
				s.List = &v1.MemberList{
					Version: 2, State: v1.ListAdopting, Members: s.List.Members, Previous: &v1.PreviousList{Members: s.List.Members},
				}
				s.report("b").Version, s.report("b").Digest = 2, "other"
			},
			wantConditions{available: "True Elected: The agents agree on the coordinator"},
		},
		"an agent has newer settings than the operator": {
			3, func(s *harness) { s.report("a").Generation = 2 }, wantConditions{available: "True Elected: The agents agree on the coordinator"},
		},
		"agents have older settings": {
			3, func(s *harness) { s.Group.Generation = 2; s.report("a").Generation = 2 },
			wantConditions{
				available: "True Elected: The agents agree on the coordinator",
				ready:     "False SettingsDiffer: b and c have not applied generation 2 of the spec yet",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(c.members)
			c.change(s)
			r := s.evaluate()
			c.want.check(t, &r.Status)
		})
	}
}

// useSelector replaces the declared members by a selector that matches the same pods.
func (s *harness) useSelector() {
	s.Group.Spec.Members = nil
	s.Group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "ledger"}}
	s.Group.Spec.PriorityFrom = &v1.PriorityFrom{Annotation: v1.AnnotationPriority}
	for name := range s.Pods {
		s.Pods[name].Labels["app"] = "ledger"
	}
}

// TestVersionsOfAgents: an agent that disconnects keeps its version, so that the status
// doesn't change.
func TestVersionsOfAgents(t *testing.T) {
	s := newHarness(3)
	for _, step := range []struct {
		change      func()
		rows, shown string
	}{
		{func() {}, ",,", ""},
		{func() { s.setVersion("v1", "a", "b", "c") }, "v1,v1,v1", ""},
		{func() { s.setVersion("v2", "a") }, "v1,v1,v2", ". Their versions differ: v1 (2), v2 (1)"},
		{func() { s.setVersion("", "a") }, "v1,v1,v2", ". Their versions differ: v1 (2), v2 (1)"},
		{func() { s.setVersion("v2", "a", "b", "c") }, "v2,v2,v2", ""},
	} {
		step.change()
		r := s.evaluate()
		var rows []string
		for _, row := range r.Status.Processes {
			rows = append(rows, row.AgentVersion)
		}
		connected := meta.FindStatusCondition(r.Status.Conditions, string(v1.ConditionAgentsConnected)).Message
		if got, want := strings.Join(rows, ","), step.rows; got != want || connected != "The agent of each member is connected"+step.shown {
			t.Errorf("got versions %s and %q, want %s and %q", got, connected, want, step.shown)
		}
	}
}

func (s *harness) setVersion(version string, pods ...string) {
	for _, pod := range pods {
		agent := s.Agents[pod]
		agent.Version = version
		s.Agents[pod] = agent
	}
}

func TestTransitionTimes(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.setTime(time.Minute)
	s.crash("a")
	s.evaluate()
	s.setTime(2 * time.Minute)
	s.report("c").Generation = 1
	s.crash("b")
	s.reportCoordinator("c", "c")
	r := s.evaluate()
	for of, want := range map[v1.ConditionType]time.Duration{
		v1.ConditionReady: 0, v1.ConditionDegraded: time.Minute, v1.ConditionAvailable: 0, v1.ConditionAgentsConnected: time.Minute,
	} {
		if c := meta.FindStatusCondition(r.Status.Conditions, string(of)); c.LastTransitionTime.Sub(noon) != want {
			t.Errorf("%s is %s: got transition time %v, want %v", c.Type, c.Status, c.LastTransitionTime.Sub(noon), want)
		}
	}
}

// TestOtherConditionsRemain tests conditions that another controller has set.
func TestOtherConditionsRemain(t *testing.T) {
	s := newHarness(3)
	s.Group.Status.Conditions = []metav1.Condition{{Type: "example.org/Approved", Status: metav1.ConditionTrue, Reason: "Yes"}}
	r := s.evaluate()
	if len(r.Status.Conditions) != 6 || r.Status.Conditions[0].Type != "example.org/Approved" {
		t.Errorf("got conditions %+v", r.Status.Conditions)
	}
}
