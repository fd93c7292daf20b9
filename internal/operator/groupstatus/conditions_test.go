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
type wanted struct{ ready, elected, agreed, connected string }

func (w wanted) check(t *testing.T, status *v1.ElectionGroupStatus) {
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
			expect(t, string(c.of), shown(status, c.of), c.want)
		}
	}
}

func TestConditions(t *testing.T) {
	for sentence, c := range map[string]struct {
		members int
		change  func(*scene)
		want    wanted
	}{
		"all is well": {
			3, func(*scene) {},
			wanted{
				"True Healthy: all is well", "True Elected: c leads in term 130896001", "True Agreed: all agents say the same",
				"True Connected: the agent of each member is heard",
			},
		},
		"a single member": {
			1, func(*scene) {},
			wanted{ready: "True NoFailover: all is well, but nobody could take over: there is a single member"},
		},
		"a single one stands": {
			3, func(s *scene) { s.List.Members[0].Priority, s.List.Members[1].Priority = 0, 0 },
			wanted{ready: "True NoFailover: all is well, but nobody could take over: a single member has a priority above 0"},
		},
		"two members and a majority": {
			2, func(*scene) {},
			wanted{ready: "True NoFailover: all is well, but nobody could take over: two members have a majority of two; " +
				"three would do, and one of them can have priority 0"},
		},
		"two members and no majority": {
			2, func(s *scene) { s.Group.Spec.Safety.Mode = v1.Available }, wanted{ready: "True Healthy: all is well"},
		},
		"no pods at all": {
			3, func(s *scene) { s.gone("a"); s.gone("b"); s.gone("c") },
			wanted{
				"Unknown NoReports: members have no pods: make a, b and c, or take them out of spec.members",
				"Unknown NoReports: no agent that goes by the list of members is heard",
				"Unknown NoReports: no agent that goes by the list of members is heard",
				"False PodsMissing: members have no pods: make a, b and c, or take them out of spec.members",
			},
		},
		"pods were there before the group": {
			5, func(s *scene) {
				for _, name := range s.names {
					s.kill(name)
					s.Pods[name].Spec.InitContainers = nil
				}
			},
			wanted{
				ready: "Unknown NoReports: a, b, c and 2 more run without an agent: put the label conclave.dev/agent: enabled " +
					"and the annotation conclave.dev/groups: ledger into the template, and have the pods made anew",
				connected: "False NoAgent: a, b, c and 2 more run without an agent: put the label conclave.dev/agent: enabled " +
					"and the annotation conclave.dev/groups: ledger into the template, and have the pods made anew",
			},
		},
		"a pod doesn't name the group": {
			3, func(s *scene) { s.kill("a"); s.Pods["a"].Annotations = nil },
			wanted{connected: "False NoAgent: a runs with an agent that takes no part in the group: put the annotation conclave.dev/groups: ledger into the template, " +
				"and have the pods made anew"},
		},
		"nobody has been asked yet": {
			3, (*scene).restartOperator,
			wanted{
				"Unknown NoReports: no agent that goes by the list of members is heard",
				"Unknown NoReports: no agent that goes by the list of members is heard",
				"Unknown NoReports: no agent that goes by the list of members is heard", "Unknown NoReports: not every agent has been asked yet",
			},
		},
		"an election is under way": {
			3, func(s *scene) { s.kill("c"); s.name("", "a", "b") },
			wanted{ready: "False NoCoordinator: nobody leads: an election is under way", elected: "False Electing: an election is under way"},
		},
		"too few are up": {
			5, func(s *scene) { s.name("", s.names...); s.kill("c"); s.kill("d"); s.kill("e") },
			wanted{
				ready:   "False NoCoordinator: nobody leads: 2 of 5 members are up, and it takes 3 to elect",
				elected: "False NoMajority: 2 of 5 members are up, and it takes 3 to elect",
			},
		},
		"too few are up, but it takes no majority": {
			5, func(s *scene) {
				s.Group.Spec.Safety.Mode = v1.Available
				s.name("", s.names...)
				s.kill("c")
				s.kill("d")
				s.kill("e")
			},
			wanted{elected: "False Electing: an election is under way"},
		},
		"no application lets its member stand": {
			3, func(s *scene) {
				s.name("", s.names...)
				for _, name := range s.names {
					s.said(name).Eligible = false
				}
			},
			wanted{elected: "False NoEligibleMember: no live member stands: a, b and c are kept from it by their applications, or by the operator: see processes"},
		},
		"one might stand whose agent isn't heard": {
			3, func(s *scene) {
				s.name("", s.names...)
				s.said("a").Eligible, s.said("b").Eligible = false, false
				s.lose("c")
			},
			wanted{elected: "False Electing: an election is under way"},
		},
		"only those are up that never stand": {
			3, func(s *scene) {
				s.List.Members[0].Priority, s.List.Members[1].Priority = 0, 0
				s.name("", s.names...)
				s.kill("c")
			},
			wanted{elected: "False NoEligibleMember: no member with a priority above 0 is up"},
		},
		"a member is down": {
			3, func(s *scene) { s.kill("a") },
			wanted{
				ready:     "False MembersDown: 1 of 3 members are down: a",
				connected: "False Unreachable: the operator doesn't hear the agents of a: see processes",
			},
		},
		"a member has no pod": {
			3, func(s *scene) { s.gone("a") },
			wanted{connected: "False PodsMissing: members have no pods: make a, or take them out of spec.members"},
		},
		"a pod isn't running yet": {
			3, func(s *scene) { s.kill("a"); s.Pods["a"].Status.Phase = corev1.PodPending },
			wanted{connected: "False Unreachable: pods aren't running yet: a"},
		},
		"a pod is being deleted, and its agent still answers": {
			3, func(s *scene) { s.Pods["a"].DeletionTimestamp = new(metav1.NewTime(noon)) },
			wanted{connected: "True Connected: the agent of each member is heard"},
		},
		"and when it doesn't any more": {
			3, func(s *scene) { s.kill("a"); s.Pods["a"].DeletionTimestamp = new(metav1.NewTime(noon)) },
			wanted{connected: "False Unreachable: the operator doesn't hear the agents of a: see processes"},
		},
		"the list is being adopted": {
			3, func(s *scene) {
				s.List = &v1.MemberList{
					Version: 2, State: v1.ListAdopting, Members: s.List.Members, Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
				}
			},
			wanted{ready: "False Adopting: the agents go over to version 2 of the list of members"},
		},
		"what agents mount can't be written": {
			3, func(s *scene) { s.PublishError = "write ConfigMap conclave-ledger: exceeded quota" },
			wanted{
				ready:   "False WriteFailed: agents go on with what they have: the operator can't write ConfigMap conclave-ledger: exceeded quota",
				elected: "True Elected: c leads in term 130896001",
			},
		},
		"the Service can't be written": {
			3, func(s *scene) { s.RoutingError = "write Service front: denied" },
			wanted{ready: "False WriteFailed: traffic may go to the wrong pod: the operator can't write Service front: denied"},
		},
		"the Service is somebody else's": {
			3, func(s *scene) { s.ServiceConflict = true; s.Group.Spec.Service = &v1.CoordinatorService{Name: "front"} },
			wanted{ready: "False ServiceConflict: Service front is somebody else's: give spec.service another name, or delete that Service"},
		},
		"the Service selects pods itself": {
			3, func(s *scene) {
				s.ServiceHasSelector = true
				s.Group.Spec.Service = &v1.CoordinatorService{Name: "front"}
			},
			wanted{ready: "False ServiceConflict: Service front has a selector, so it leads to every pod that this finds: " +
				"give spec.service another name, or delete that Service, and it is made without"},
		},
		"the EndpointSlice is somebody else's": {
			3, func(s *scene) {
				s.EndpointSliceConflict = true
				s.Group.Spec.Service = &v1.CoordinatorService{Name: "front"}
			},
			wanted{ready: "False ServiceConflict: EndpointSlice front-conclave is somebody else's: give spec.service another name, or delete that EndpointSlice"},
		},
		"the selector finds too many, and the list there is goes on": {
			3, func(s *scene) { s.Problem = &membership.Problem{Reason: v1.ReasonTooManyMembers, Message: "too many"} },
			wanted{
				ready: "False TooManyMembers: too many", elected: "True Elected: c leads in term 130896001",
				connected: "True Connected: the agent of each member is heard",
			},
		},
		"the selector finds nobody, and there has been no list": {
			3, func(s *scene) {
				s.List, s.Agents = nil, nil
				s.Problem = &membership.Problem{Reason: v1.ReasonNoMembers, Message: "nobody"}
			},
			wanted{
				"False NoMembers: nobody", "False NoMembers: nobody",
				"Unknown NoReports: no agent has been heard yet: there is no list of members before", "False NoMembers: nobody",
			},
		},
		"a selected pod has no agent, and there has been no list": {
			3, func(s *scene) {
				s.selector()
				s.List, s.Agents = nil, nil
				s.Pods["a"].Spec.InitContainers = nil
			},
			wanted{ready: "Unknown NoReports: a runs without an agent: put the label conclave.dev/agent: enabled and the annotation " +
				"conclave.dev/groups: ledger into the template, and have the pods made anew"},
		},
		"a selected pod is about to join": {
			3, func(s *scene) { s.selector(); s.run("d").Labels["app"] = "ledger" },
			wanted{connected: "True Connected: the agent of each member is heard"},
		},
		"a selected pod has no agent, and the others have": {
			3, func(s *scene) {
				s.selector()
				s.run("d").Labels["app"] = "ledger"
				s.Pods["d"].Spec.InitContainers = nil
			},
			wanted{connected: "False NoAgent: d runs without an agent: put the label conclave.dev/agent: enabled and the annotation " +
				"conclave.dev/groups: ledger into the template, and have the pods made anew"},
		},
		"agents have different lists of one version": {
			5, func(s *scene) { s.said("b").Digest = "other" },
			wanted{agreed: "False ListsDiffer: agents don't listen to each other: a, c, d and 1 more go by one list of version 1; " +
				"b goes by one list of version 1; delete the pods on the smaller side"},
		},
		"lists of different versions are another matter": {
			3, func(s *scene) {
				s.List = &v1.MemberList{
					Version: 2, State: v1.ListAdopting, Members: s.List.Members, Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
				}
				s.said("b").Version, s.said("b").Digest = 2, "other"
			},
			wanted{agreed: "True Agreed: all agents say the same"},
		},
		"the operator's copy of the spec is older than the agents'": {
			3, func(s *scene) { s.said("a").Generation = 2 }, wanted{agreed: "True Agreed: all agents say the same"},
		},
		"agents run with older settings": {
			3, func(s *scene) { s.Group.Generation = 2; s.said("a").Generation = 2 },
			wanted{
				agreed: "False SettingsDiffer: b and c are on the way to generation 2 of the spec",
				ready:  "False Disagreement: b and c are on the way to generation 2 of the spec",
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newScene(c.members)
			c.change(s)
			r := s.make()
			c.want.check(t, &r.Status)
		})
	}
}

// selector makes the scene's group one with a selector, which finds its pods.
func (s *scene) selector() {
	s.Group.Spec.Members = nil
	s.Group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "ledger"}}
	s.Group.Spec.PriorityFrom = &v1.PriorityFrom{Annotation: v1.AnnotationPriority}
	for _, name := range s.names {
		s.Pods[name].Labels["app"] = "ledger"
	}
}

// TestReadyIsTheFirstThingThatIsWrong mends one thing after the other.
func TestReadyIsTheFirstThingThatIsWrong(t *testing.T) {
	s := newScene(3)
	s.Problem = &membership.Problem{Reason: v1.ReasonInvalidMembers, Message: "invalid"}
	s.PublishError, s.RoutingError = "write it", "write another"
	s.ServiceConflict, s.Group.Spec.Service = true, &v1.CoordinatorService{Name: "front"}
	s.List = &v1.MemberList{
		Version: 2, State: v1.ListAdopting, Members: s.List.Members[:1:1], Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
	}
	s.List.Members = append(s.List.Members, v1.Member{Pod: "x", Priority: 7})
	s.said("b").Digest = "other"
	s.lose("a", "b", "c")
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
			s.name("", s.names...)
		}},
		{v1.ReasonNoCoordinator, func() { s.lead("a") }},
		{v1.ReasonDisagreement, func() { s.said("b").Digest = "d" }},
		{v1.ReasonMembersDown, func() { s.List.Members = s.List.Members[:1] }},
		{v1.ReasonAdopting, func() { s.List.State = v1.ListSettled; s.said("a").Version = 2 }},
		{v1.ReasonServiceConflict, func() { s.ServiceConflict = false }},
		{v1.ReasonWriteFailed, func() { s.RoutingError = "" }},
		{v1.ReasonNoFailover, func() {
			s.List.Members = s.Group.Spec.Members
			s.said("b").Version, s.said("c").Version = 2, 2
		}},
		{v1.ReasonHealthy, nil},
	} {
		r := s.make()
		if got := r.Status.Conditions[0]; got.Reason != string(step.want) {
			t.Fatalf("Ready is %s, want %s: %s", got.Reason, step.want, got.Message)
		}
		if step.mend != nil {
			step.mend()
		}
	}
}

func TestTransitionTimes(t *testing.T) {
	s := newScene(3)
	s.make()
	s.at(time.Minute)
	s.kill("a")
	s.make()
	s.at(2 * time.Minute)
	s.said("c").Generation = 1
	s.kill("b")
	s.name("c", "c")
	r := s.make()
	for i, want := range []time.Duration{time.Minute, 0, 0, time.Minute} {
		if c := r.Status.Conditions[i]; c.LastTransitionTime.Sub(noon) != want {
			t.Errorf("%s is %s since %v, want %v", c.Type, c.Status, c.LastTransitionTime.Sub(noon), want)
		}
	}
}

// TestConditionsOfOthersStay: who else writes one keeps it.
func TestConditionsOfOthersStay(t *testing.T) {
	s := newScene(3)
	s.Group.Status.Conditions = []metav1.Condition{{Type: "example.org/Blessed", Status: metav1.ConditionTrue, Reason: "Yes"}}
	r := s.make()
	if len(r.Status.Conditions) != 5 || r.Status.Conditions[0].Type != "example.org/Blessed" {
		t.Errorf("the conditions are %+v", r.Status.Conditions)
	}
}
