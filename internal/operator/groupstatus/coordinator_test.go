package groupstatus

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// TestWhoLeads: each case begins with a status in which e of five leads.
func TestWhoLeads(t *testing.T) {
	for sentence, c := range map[string]struct {
		mode   v1.SafetyMode
		change func(*harness)
		want   string
	}{
		"the newest term wins, though one agent alone has heard of it": {
			change: func(s *harness) { s.term++; s.reportCoordinator("d", "d") }, want: "d",
		},
		"of one term, the higher fencing token wins": {
			mode:   v1.Available,
			change: func(s *harness) { s.reportCoordinator("d", "a", "b", "d") }, want: "e",
		},
		"one that is cut off from the others doesn't unseat the coordinator": {
			change: func(s *harness) { s.reportCoordinator("", "a") }, want: "e",
		},
		"who believes in a coordinator that most others have lost is behind": {
			change: func(s *harness) { s.reportCoordinator("", "a", "b", "c") }, want: "nobody",
		},
		"two against two, and the coordinator can't be heard": {
			change: func(s *harness) { s.reportCoordinator("", "a", "b"); s.disconnect("e") }, want: "e",
		},
		"in Available mode, each side's coordinator leads its side": {
			mode:   v1.Available,
			change: func(s *harness) { s.reportCoordinator("", "a", "b", "c") }, want: "e",
		},
		"the coordinator knows best when it doesn't lead any more": {
			change: func(s *harness) { s.reportCoordinator("", "e") }, want: "nobody",
		},
		"in Available mode, too": {
			mode:   v1.Available,
			change: func(s *harness) { s.reportCoordinator("", "e") }, want: "nobody",
		},
		"in Available mode, the other side's leads when the newest is over": {
			mode:   v1.Available,
			change: func(s *harness) { s.term++; s.reportCoordinator("d", "c", "d"); s.reportCoordinator("", "d") }, want: "e",
		},
		"where it takes a majority, nobody does then: the older tenure was over before": {
			change: func(s *harness) { s.term++; s.reportCoordinator("d", "c", "d"); s.reportCoordinator("", "d") }, want: "nobody",
		},
		"the winner's own word may come last": {
			change: func(s *harness) { s.reportCoordinator("", "d"); s.term++; s.reportCoordinator("d", "a") }, want: "d",
		},
		"no agent names an older coordinator into office again": {
			change: func(s *harness) {
				s.Group.Status.Term += 100
				s.reportCoordinator("d", "a", "b", "c", "d", "e")
				for _, name := range s.names {
					s.report(name).Term += 99
				}
			}, want: "nobody",
		},
		"a coordinator that nobody knows is none": {
			change: func(s *harness) { s.term++; s.reportCoordinator("x", "a") }, want: "e",
		},
		"a member that never stands doesn't lead": {
			change: func(s *harness) { s.List.Members[0].Priority = 0; s.term++; s.reportCoordinator("a", "b") }, want: "e",
		},
		"one of the list before leads until the next one has settled": {
			change: func(s *harness) {
				s.List = &v1.MemberList{
					Version: 2, State: v1.ListAdopting, Members: s.List.Members[:4],
					Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
				}
			}, want: "e",
		},
		"and no longer": {
			change: func(s *harness) {
				s.List = &v1.MemberList{
					Version: 2, State: v1.ListSettled, Members: s.List.Members[:4],
					Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
				}
				for _, name := range s.names {
					s.report(name).Version = 2
				}
			}, want: "nobody",
		},
		"an operator that has just started knows who led": {
			change: (*harness).restartOperator, want: "e",
		},
		"an operator that hears nobody lets the Service lead where it led": {
			change: func(s *harness) { s.disconnect(s.names...) }, want: "e",
		},
		"but not to a pod that isn't there": {
			change: func(s *harness) { s.disconnect(s.names...); delete(s.Pods, "e") }, want: "nobody",
		},
		"nor to one that has ended": {
			change: func(s *harness) { s.disconnect(s.names...); s.Pods["e"].Status.Phase = corev1.PodSucceeded }, want: "nobody",
		},
		"nor to one that isn't a member any more": {
			change: func(s *harness) { s.restartOperator(); s.List.Members = s.List.Members[:4] }, want: "nobody",
		},
		"agents that have just started know of nobody": {
			change: func(s *harness) { s.restartOperator(); s.connect("a"); s.connect("b") }, want: "e",
		},
		"unless one is the coordinator's own": {
			change: func(s *harness) { s.restartOperator(); s.connect("e") }, want: "nobody",
		},
		"or one knew of it": {
			change: func(s *harness) {
				said := s.report("a")
				s.restartOperator()
				s.Agents["a"] = AgentState{Connected: true, Report: said}
				s.reportCoordinator("", "a")
			},
			want: "nobody",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newHarness(5)
			s.Group.Spec.Safety.Mode = c.mode
			before := s.evaluate()
			expect(t, "before", coordinatorName(&before.Status), "e")
			term := s.Group.Status.Term
			c.change(s)
			r := s.evaluate()
			expect(t, "coordinator", coordinatorName(&r.Status), c.want)
			if r.Status.Term < term {
				t.Errorf("the term went back from %d to %d", term, r.Status.Term)
			}
			if r.Status.Coordinator == nil && r.Coordinator != "" {
				t.Errorf("nobody leads, and the Service leads to %s", r.Coordinator)
			}
		})
	}
}

func TestServiceFollowsAPodThatIsThere(t *testing.T) {
	s := newHarness(3)
	expect(t, "the Service leads to", s.evaluate().Coordinator, "c")
	delete(s.Pods, "c")
	expect(t, "without its pod", s.evaluate().Coordinator, "")
}

func TestElectedAt(t *testing.T) {
	s := newHarness(3)
	early, late := noon.Add(-time.Second), noon.Add(time.Second+1500*time.Nanosecond)
	s.report("a").ElectedAt, s.report("b").ElectedAt = noon, early
	s.report("c").ElectedAt = late
	if got := s.evaluate().Status.Coordinator.ElectedAt; !got.Equal(new(metav1.NewMicroTime(late.Truncate(time.Microsecond)))) {
		t.Errorf("elected at %v, which isn't the coordinator's own word", got)
	}
	s.report("c").ElectedAt = early
	if got := s.evaluate().Status.Coordinator.ElectedAt; got.Time.Before(noon) {
		t.Errorf("the same tenure began at %v all at once", got)
	}
	s = newHarness(3)
	s.report("b").ElectedAt = early
	s.disconnect("c")
	if got := s.evaluate().Status.Coordinator.ElectedAt; !got.Time.Equal(early) {
		t.Errorf("elected at %v, and b knew before", got)
	}
}

// TestRestartOfTheOperatorChangesNothing, in whatever order it hears the agents
// again.
func TestRestartOfTheOperatorChangesNothing(t *testing.T) {
	for sentence, change := range map[string]func(*harness){
		"all is well":          func(*harness) {},
		"one is down":          func(s *harness) { s.deletePod("b") },
		"one can't be reached": func(s *harness) { s.disconnect("a") },
		"one doesn't stand":    func(s *harness) { s.report("d").Eligible = false },
		"two sides": func(s *harness) {
			s.Group.Spec.Safety.Mode = v1.Available
			s.term++
			s.reportCoordinator("d", "c", "d")
		},
		"nobody leads": func(s *harness) { s.reportCoordinator("", s.names...); s.crash("e"); s.crash("d"); s.crash("c") },
		"the list is being adopted": func(s *harness) {
			s.List = &v1.MemberList{
				Version: 2, State: v1.ListAdopting, Members: s.List.Members[:4], Floor: new(int64(1)),
				Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
			}
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newHarness(5)
			s.evaluate()
			change(s)
			s.setTime(time.Minute)
			s.evaluate()
			s.setTime(2 * time.Minute)
			want := s.evaluate().Status
			heard := s.Agents
			order := append([]string{""}, s.names...)
			for range 5 {
				s.restartOperator()
				s.Now = s.Now.Add(time.Minute)
				for _, name := range order {
					if had, ok := heard[name]; ok {
						s.Agents[name] = had
					}
					r := s.evaluate()
					expect(t, "after "+name, formatTable(&r.Status)+coordinatorName(&r.Status)+formatEvents(r.Events), formatTable(&want)+coordinatorName(&want))
					for _, of := range []v1.ConditionType{v1.Ready, v1.CoordinatorElected, v1.Agreed, v1.AgentsConnected} {
						expect(t, "after "+name, formatCondition(&r.Status, of), formatCondition(&want, of))
					}
				}
				order = append(order[:1:1], append(slices.Clone(order[2:]), order[1])...)
			}
		})
	}
}
