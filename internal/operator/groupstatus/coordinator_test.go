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
		change func(*scene)
		want   string
	}{
		"the newest term wins, though one agent alone has heard of it": {
			change: func(s *scene) { s.term++; s.name("d", "d") }, want: "d",
		},
		"of one term, the higher fencing token wins": {
			mode:   v1.Available,
			change: func(s *scene) { s.name("d", "a", "b", "d") }, want: "e",
		},
		"one that is cut off from the others doesn't unseat the coordinator": {
			change: func(s *scene) { s.name("", "a") }, want: "e",
		},
		"who believes in a coordinator that most others have lost is behind": {
			change: func(s *scene) { s.name("", "a", "b", "c") }, want: "nobody",
		},
		"two against two, and the coordinator can't be heard": {
			change: func(s *scene) { s.name("", "a", "b"); s.lose("e") }, want: "e",
		},
		"in Available mode, each side's coordinator leads its side": {
			mode:   v1.Available,
			change: func(s *scene) { s.name("", "a", "b", "c") }, want: "e",
		},
		"the coordinator knows best when it doesn't lead any more": {
			change: func(s *scene) { s.name("", "e") }, want: "nobody",
		},
		"in Available mode, too": {
			mode:   v1.Available,
			change: func(s *scene) { s.name("", "e") }, want: "nobody",
		},
		"in Available mode, the other side's leads when the newest is over": {
			mode:   v1.Available,
			change: func(s *scene) { s.term++; s.name("d", "c", "d"); s.name("", "d") }, want: "e",
		},
		"where it takes a majority, nobody does then: the older tenure was over before": {
			change: func(s *scene) { s.term++; s.name("d", "c", "d"); s.name("", "d") }, want: "nobody",
		},
		"the winner's own word may come last": {
			change: func(s *scene) { s.name("", "d"); s.term++; s.name("d", "a") }, want: "d",
		},
		"no agent names an older coordinator into office again": {
			change: func(s *scene) {
				s.Group.Status.Term += 100
				s.name("d", "a", "b", "c", "d", "e")
				for _, name := range s.names {
					s.said(name).Term += 99
				}
			}, want: "nobody",
		},
		"a coordinator that nobody knows is none": {
			change: func(s *scene) { s.term++; s.name("x", "a") }, want: "e",
		},
		"a member that never stands doesn't lead": {
			change: func(s *scene) { s.List.Members[0].Priority = 0; s.term++; s.name("a", "b") }, want: "e",
		},
		"one of the list before leads until the next one has settled": {
			change: func(s *scene) {
				s.List = &v1.MemberList{
					Version: 2, State: v1.ListAdopting, Members: s.List.Members[:4],
					Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
				}
			}, want: "e",
		},
		"and no longer": {
			change: func(s *scene) {
				s.List = &v1.MemberList{
					Version: 2, State: v1.ListSettled, Members: s.List.Members[:4],
					Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
				}
				for _, name := range s.names {
					s.said(name).Version = 2
				}
			}, want: "nobody",
		},
		"an operator that has just started knows who led": {
			change: (*scene).restartOperator, want: "e",
		},
		"an operator that hears nobody lets the Service lead where it led": {
			change: func(s *scene) { s.lose(s.names...) }, want: "e",
		},
		"but not to a pod that isn't there": {
			change: func(s *scene) { s.lose(s.names...); delete(s.Pods, "e") }, want: "nobody",
		},
		"nor to one that has ended": {
			change: func(s *scene) { s.lose(s.names...); s.Pods["e"].Status.Phase = corev1.PodSucceeded }, want: "nobody",
		},
		"nor to one that isn't a member any more": {
			change: func(s *scene) { s.restartOperator(); s.List.Members = s.List.Members[:4] }, want: "nobody",
		},
		"agents that have just started know of nobody": {
			change: func(s *scene) { s.restartOperator(); s.hear("a"); s.hear("b") }, want: "e",
		},
		"unless one is the coordinator's own": {
			change: func(s *scene) { s.restartOperator(); s.hear("e") }, want: "nobody",
		},
		"or one knew of it": {
			change: func(s *scene) {
				said := s.said("a")
				s.restartOperator()
				s.Agents["a"] = AgentState{Connected: true, Report: said}
				s.name("", "a")
			},
			want: "nobody",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newScene(5)
			s.Group.Spec.Safety.Mode = c.mode
			before := s.make()
			expect(t, "before", leader(&before.Status), "e")
			term := s.Group.Status.Term
			c.change(s)
			r := s.make()
			expect(t, "coordinator", leader(&r.Status), c.want)
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
	s := newScene(3)
	expect(t, "the Service leads to", s.make().Coordinator, "c")
	delete(s.Pods, "c")
	expect(t, "without its pod", s.make().Coordinator, "")
}

func TestElectedAt(t *testing.T) {
	s := newScene(3)
	early, late := noon.Add(-time.Second), noon.Add(time.Second+1500*time.Nanosecond)
	s.said("a").ElectedAt, s.said("b").ElectedAt = noon, early
	s.said("c").ElectedAt = late
	if got := s.make().Status.Coordinator.ElectedAt; !got.Equal(new(metav1.NewMicroTime(late.Truncate(time.Microsecond)))) {
		t.Errorf("elected at %v, which isn't the coordinator's own word", got)
	}
	s.said("c").ElectedAt = early
	if got := s.make().Status.Coordinator.ElectedAt; got.Time.Before(noon) {
		t.Errorf("the same tenure began at %v all at once", got)
	}
	s = newScene(3)
	s.said("b").ElectedAt = early
	s.lose("c")
	if got := s.make().Status.Coordinator.ElectedAt; !got.Time.Equal(early) {
		t.Errorf("elected at %v, and b knew before", got)
	}
}

// TestRestartOfTheOperatorChangesNothing, in whatever order it hears the agents
// again.
func TestRestartOfTheOperatorChangesNothing(t *testing.T) {
	for sentence, change := range map[string]func(*scene){
		"all is well":          func(*scene) {},
		"one is down":          func(s *scene) { s.gone("b") },
		"one can't be reached": func(s *scene) { s.lose("a") },
		"one doesn't stand":    func(s *scene) { s.said("d").Eligible = false },
		"two sides":            func(s *scene) { s.Group.Spec.Safety.Mode = v1.Available; s.term++; s.name("d", "c", "d") },
		"nobody leads":         func(s *scene) { s.name("", s.names...); s.kill("e"); s.kill("d"); s.kill("c") },
		"the list is being adopted": func(s *scene) {
			s.List = &v1.MemberList{
				Version: 2, State: v1.ListAdopting, Members: s.List.Members[:4], Floor: new(int64(1)),
				Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
			}
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newScene(5)
			s.make()
			change(s)
			s.at(time.Minute)
			s.make()
			s.at(2 * time.Minute)
			want := s.make().Status
			heard := s.Agents
			order := append([]string{""}, s.names...)
			for range 5 {
				s.restartOperator()
				s.Now = s.Now.Add(time.Minute)
				for _, name := range order {
					if had, ok := heard[name]; ok {
						s.Agents[name] = had
					}
					r := s.make()
					expect(t, "after "+name, table(&r.Status)+leader(&r.Status)+told(r.Events), table(&want)+leader(&want))
					for _, of := range []v1.ConditionType{v1.Ready, v1.CoordinatorElected, v1.Agreed, v1.AgentsConnected} {
						expect(t, "after "+name, shown(&r.Status, of), shown(&want, of))
					}
				}
				order = append(order[:1:1], append(slices.Clone(order[2:]), order[1])...)
			}
		})
	}
}
