package groupstatus

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/membership"
)

// wanted are the conditions that a case is about; "" is not looked at.
type wantConditions struct{ ready, elected, agreed, connected string }

func (w wantConditions) check(t *testing.T, status *v1.ElectionGroupStatus) {
	t.Helper()
	for _, c := range []struct {
		of   v1.ConditionType
		want string
	}{
		{v1.Ready, w.ready},
		{v1.CoordinatorElected, w.elected},
		{v1.Agreed, w.agreed},
		{v1.AgentsConnected, w.connected},
	} {
		if c.want != "" {
			expect(t, string(c.of), formatCondition(status, c.of), c.want)
		}
	}
}

func TestConditions(t *testing.T) {
	for sentence, c := range map[string]struct {
		members int
		change  func(*harness)
		want    wantConditions
	}{
		"all is well": {
			3, func(*harness) {},
			wantConditions{
				"True Healthy: all is well", "True Elected: c leads in term 130896001", "True Agreed: all agents say the same",
				"True Connected: the agent of each member is heard",
			},
		},
		"a single member": {
			1, func(*harness) {},
			wantConditions{ready: "True NoFailover: all is well, but nobody could take over: there is a single member"},
		},
		"a single one stands": {
			3, func(s *harness) { s.List.Members[0].Priority, s.List.Members[1].Priority = 0, 0 },
			wantConditions{ready: "True NoFailover: all is well, but nobody could take over: a single member has a priority above 0"},
		},
		"two members and a majority": {
			2, func(*harness) {},
			wantConditions{ready: "True NoFailover: all is well, but nobody could take over: two members have a majority of two; " +
				"three would do, and one of them can have priority 0"},
		},
		"two members and no majority": {
			2, func(s *harness) { s.Group.Spec.Safety.Mode = v1.Available }, wantConditions{ready: "True Healthy: all is well"},
		},
		"no pods at all": {
			3, func(s *harness) { s.deletePod("a"); s.deletePod("b"); s.deletePod("c") },
			wantConditions{
				"Unknown NoReports: members have no pods: make a, b and c, or take them out of spec.members",
				"Unknown NoReports: no agent that goes by the list of members is heard",
				"Unknown NoReports: no agent that goes by the list of members is heard",
				"False PodsMissing: members have no pods: make a, b and c, or take them out of spec.members",
			},
		},
		"pods were there before the group": {
			5, func(s *harness) {
				for _, name := range s.names {
					s.crash(name)
					s.Pods[name].Spec.InitContainers = nil
				}
			},
			wantConditions{
				ready: "Unknown NoReports: a, b, c and 2 more run without an agent: put the label conclave.dev/agent: enabled " +
					"and the annotation conclave.dev/groups: ledger into the template, and have the pods made anew",
				connected: "False NoAgent: a, b, c and 2 more run without an agent: put the label conclave.dev/agent: enabled " +
					"and the annotation conclave.dev/groups: ledger into the template, and have the pods made anew",
			},
		},
		"a pod doesn't name the group": {
			3, func(s *harness) { s.crash("a"); s.Pods["a"].Annotations = nil },
			wantConditions{connected: "False NoAgent: a runs with an agent that takes no part in the group: put the annotation conclave.dev/groups: ledger into the template, " +
				"and have the pods made anew"},
		},
		"nobody has been asked yet": {
			3, (*harness).restartOperator,
			wantConditions{
				"Unknown NoReports: no agent that goes by the list of members is heard",
				"Unknown NoReports: no agent that goes by the list of members is heard",
				"Unknown NoReports: no agent that goes by the list of members is heard", "Unknown NoReports: not every agent has been asked yet",
			},
		},
		"an election is under way": {
			3, func(s *harness) { s.crash("c"); s.reportCoordinator("", "a", "b") },
			wantConditions{ready: "False NoCoordinator: nobody leads: an election is under way", elected: "False Electing: an election is under way"},
		},
		"too few are up": {
			5, func(s *harness) { s.reportCoordinator("", s.names...); s.crash("c"); s.crash("d"); s.crash("e") },
			wantConditions{
				ready:   "False NoCoordinator: nobody leads: 2 of 5 members are up, and it takes 3 to elect",
				elected: "False NoMajority: 2 of 5 members are up, and it takes 3 to elect",
			},
		},
		"too few are up, but it takes no majority": {
			5, func(s *harness) {
				s.Group.Spec.Safety.Mode = v1.Available
				s.reportCoordinator("", s.names...)
				s.crash("c")
				s.crash("d")
				s.crash("e")
			},
			wantConditions{elected: "False Electing: an election is under way"},
		},
		"no application lets its member stand": {
			3, func(s *harness) {
				s.reportCoordinator("", s.names...)
				for _, name := range s.names {
					s.report(name).Eligible = false
				}
			},
			wantConditions{elected: "False NoEligibleMember: no live member stands: a, b and c are kept from it by their applications, or by the operator: see processes"},
		},
		"one might stand whose agent isn't heard": {
			3, func(s *harness) {
				s.reportCoordinator("", s.names...)
				s.report("a").Eligible, s.report("b").Eligible = false, false
				s.disconnect("c")
			},
			wantConditions{elected: "False Electing: an election is under way"},
		},
		"only those are up that never stand": {
			3, func(s *harness) {
				s.List.Members[0].Priority, s.List.Members[1].Priority = 0, 0
				s.reportCoordinator("", s.names...)
				s.crash("c")
			},
			wantConditions{elected: "False NoEligibleMember: no member with a priority above 0 is up"},
		},
		"a member is down": {
			3, func(s *harness) { s.crash("a") },
			wantConditions{
				ready:     "False MembersDown: 1 of 3 members are down: a",
				connected: "False Unreachable: the operator doesn't hear the agents of a: see processes",
			},
		},
		"a member has no pod": {
			3, func(s *harness) { s.deletePod("a") },
			wantConditions{connected: "False PodsMissing: members have no pods: make a, or take them out of spec.members"},
		},
		"a pod isn't running yet": {
			3, func(s *harness) { s.crash("a"); s.Pods["a"].Status.Phase = corev1.PodPending },
			wantConditions{connected: "False Unreachable: pods aren't running yet: a"},
		},
		"a pod is being deleted, and its agent still answers": {
			3, func(s *harness) { s.Pods["a"].DeletionTimestamp = new(metav1.NewTime(noon)) },
			wantConditions{connected: "True Connected: the agent of each member is heard"},
		},
		"and when it doesn't any more": {
			3, func(s *harness) { s.crash("a"); s.Pods["a"].DeletionTimestamp = new(metav1.NewTime(noon)) },
			wantConditions{connected: "False Unreachable: the operator doesn't hear the agents of a: see processes"},
		},
		"the list is being adopted": {
			3, func(s *harness) {
				s.List = &v1.MemberList{
					Version: 2, State: v1.ListAdopting, Members: s.List.Members, Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
				}
			},
			wantConditions{ready: "False Adopting: the agents go over to version 2 of the list of members"},
		},
		"what agents mount can't be written": {
			3, func(s *harness) { s.PublishError = "write ConfigMap conclave-ledger: exceeded quota" },
			wantConditions{
				ready:   "False WriteFailed: agents go on with what they have: the operator can't write ConfigMap conclave-ledger: exceeded quota",
				elected: "True Elected: c leads in term 130896001",
			},
		},
		"the Service can't be written": {
			3, func(s *harness) { s.RoutingError = "write Service front: denied" },
			wantConditions{ready: "False WriteFailed: traffic may go to the wrong pod: the operator can't write Service front: denied"},
		},
		"the Service is somebody else's": {
			3, func(s *harness) {
				s.ServiceConflict = true
				s.Group.Spec.Service = &v1.CoordinatorService{Name: "front"}
			},
			wantConditions{ready: "False ServiceConflict: Service front is somebody else's: give spec.service another name, or delete that Service"},
		},
		"the Service selects pods itself": {
			3, func(s *harness) {
				s.ServiceHasSelector = true
				s.Group.Spec.Service = &v1.CoordinatorService{Name: "front"}
			},
			wantConditions{ready: "False ServiceConflict: Service front has a selector, so it leads to every pod that this finds: " +
				"give spec.service another name, or delete that Service, and it is made without"},
		},
		"the EndpointSlice is somebody else's": {
			3, func(s *harness) {
				s.EndpointSliceConflict = true
				s.Group.Spec.Service = &v1.CoordinatorService{Name: "front"}
			},
			wantConditions{ready: "False ServiceConflict: EndpointSlice front-conclave is somebody else's: give spec.service another name, or delete that EndpointSlice"},
		},
		"the selector finds too many, and the list there is goes on": {
			3, func(s *harness) {
				s.Problem = &membership.Problem{Reason: v1.ReasonTooManyMembers, Message: "too many"}
			},
			wantConditions{
				ready: "False TooManyMembers: too many", elected: "True Elected: c leads in term 130896001",
				connected: "True Connected: the agent of each member is heard",
			},
		},
		"the selector finds nobody, and there has been no list": {
			3, func(s *harness) {
				s.List, s.Agents = nil, nil
				s.Problem = &membership.Problem{Reason: v1.ReasonNoMembers, Message: "nobody"}
			},
			wantConditions{
				"False NoMembers: nobody", "False NoMembers: nobody",
				"Unknown NoReports: no agent has been heard yet: there is no list of members before", "False NoMembers: nobody",
			},
		},
		"a selected pod has no agent, and there has been no list": {
			3, func(s *harness) {
				s.useSelector()
				s.List, s.Agents = nil, nil
				s.Pods["a"].Spec.InitContainers = nil
			},
			wantConditions{ready: "Unknown NoReports: a runs without an agent: put the label conclave.dev/agent: enabled and the annotation " +
				"conclave.dev/groups: ledger into the template, and have the pods made anew"},
		},
		"a selected pod is about to join": {
			3, func(s *harness) { s.useSelector(); s.createPod("d").Labels["app"] = "ledger" },
			wantConditions{connected: "True Connected: the agent of each member is heard"},
		},
		"a selected pod has no agent, and the others have": {
			3, func(s *harness) {
				s.useSelector()
				s.createPod("d").Labels["app"] = "ledger"
				s.Pods["d"].Spec.InitContainers = nil
			},
			wantConditions{connected: "False NoAgent: d runs without an agent: put the label conclave.dev/agent: enabled and the annotation " +
				"conclave.dev/groups: ledger into the template, and have the pods made anew"},
		},
		"agents have different lists of one version": {
			5, func(s *harness) { s.report("b").Digest = "other" },
			wantConditions{agreed: "False ListsDiffer: agents don't listen to each other: a, c, d and 1 more go by one list of version 1; " +
				"b goes by one list of version 1; delete the pods on the smaller side"},
		},
		"lists of different versions are another matter": {
			3, func(s *harness) {
				s.List = &v1.MemberList{
					Version: 2, State: v1.ListAdopting, Members: s.List.Members, Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
				}
				s.report("b").Version, s.report("b").Digest = 2, "other"
			},
			wantConditions{agreed: "True Agreed: all agents say the same"},
		},
		"the operator's copy of the spec is older than the agents'": {
			3, func(s *harness) { s.report("a").Generation = 2 }, wantConditions{agreed: "True Agreed: all agents say the same"},
		},
		"agents run with older settings": {
			3, func(s *harness) { s.Group.Generation = 2; s.report("a").Generation = 2 },
			wantConditions{
				agreed: "False SettingsDiffer: b and c are on the way to generation 2 of the spec",
				ready:  "False Disagreement: b and c are on the way to generation 2 of the spec",
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newHarness(c.members)
			c.change(s)
			r := s.evaluate()
			c.want.check(t, &r.Status)
		})
	}
}

// selector makes the scene's group one with a selector, which finds its pods.
func (s *harness) useSelector() {
	s.Group.Spec.Members = nil
	s.Group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "ledger"}}
	s.Group.Spec.PriorityFrom = &v1.PriorityFrom{Annotation: v1.AnnotationPriority}
	for _, name := range s.names {
		s.Pods[name].Labels["app"] = "ledger"
	}
}

// TestReadyIsTheFirstThingThatIsWrong mends one thing after the other.
func TestReadyIsTheFirstThingThatIsWrong(t *testing.T) {
	s := newHarness(3)
	s.Problem = &membership.Problem{Reason: v1.ReasonInvalidMembers, Message: "invalid"}
	s.PublishError, s.RoutingError = "write it", "write another"
	s.ServiceConflict, s.Group.Spec.Service = true, &v1.CoordinatorService{Name: "front"}
	s.List = &v1.MemberList{
		Version: 2, State: v1.ListAdopting, Members: s.List.Members[:1:1], Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
	}
	s.List.Members = append(s.List.Members, v1.Member{Pod: "x", Priority: 7})
	s.report("b").Digest = "other"
	s.disconnect("a", "b", "c")
	for _, step := range []struct {
		want v1.Reason
		mend func()
	}{
		{v1.ReasonInvalidMembers, func() { s.Problem = nil }},
		{v1.ReasonWriteFailed, func() { s.PublishError = "" }},
		{v1.ReasonNoReports, func() {
			for name, heard := range s.Agents {
				s.Agents[name] = AgentState{Connected: true, Report: heard.Report}
			}
			s.reportCoordinator("", s.names...)
		}},
		{v1.ReasonNoCoordinator, func() { s.elect("a") }},
		{v1.ReasonDisagreement, func() { s.report("b").Digest = "d" }},
		{v1.ReasonMembersDown, func() { s.List.Members = s.List.Members[:1] }},
		{v1.ReasonAdopting, func() { s.List.State = v1.ListSettled; s.report("a").Version = 2 }},
		{v1.ReasonServiceConflict, func() { s.ServiceConflict = false }},
		{v1.ReasonWriteFailed, func() { s.RoutingError = "" }},
		{v1.ReasonNoFailover, func() {
			s.List.Members = s.Group.Spec.Members
			s.report("b").Version, s.report("c").Version = 2, 2
		}},
		{v1.ReasonHealthy, nil},
	} {
		r := s.evaluate()
		if got := r.Status.Conditions[0]; got.Reason != string(step.want) {
			t.Fatalf("Ready is %s, want %s: %s", got.Reason, step.want, got.Message)
		}
		if step.mend != nil {
			step.mend()
		}
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
	for i, want := range []time.Duration{time.Minute, 0, 0, time.Minute} {
		if c := r.Status.Conditions[i]; c.LastTransitionTime.Sub(noon) != want {
			t.Errorf("%s is %s since %v, want %v", c.Type, c.Status, c.LastTransitionTime.Sub(noon), want)
		}
	}
}

// TestConditionsOfOthersStay: who else writes one keeps it.
func TestConditionsOfOthersStay(t *testing.T) {
	s := newHarness(3)
	s.Group.Status.Conditions = []metav1.Condition{{Type: "example.org/Blessed", Status: metav1.ConditionTrue, Reason: "Yes"}}
	r := s.evaluate()
	if len(r.Status.Conditions) != 5 || r.Status.Conditions[0].Type != "example.org/Blessed" {
		t.Errorf("the conditions are %+v", r.Status.Conditions)
	}
}
