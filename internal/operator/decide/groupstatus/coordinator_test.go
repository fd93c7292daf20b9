package groupstatus

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
)

// TestCoordinator begins each case with a status in which e of a to e is the coordinator.
func TestCoordinator(t *testing.T) {
	cases := golden.Open(t, "testdata/coordinator.txt")
	for name, change := range map[string]func(*harness){
		"the newest term wins when a majority of the agents reports it": func(s *harness) { s.elect("d", "b", "c", "d") },
		"a minority does not prevail with a newer term": func(s *harness) {
			s.term += 500
			s.reportCoordinator("d", "c", "d")
		},
		"the majority is that of the agents that are connected": func(s *harness) {
			s.disconnect("a", "b", "e")
			s.elect("d", "c", "d")
		},
		"connected agents that haven't reported may contradict": func(s *harness) {
			for _, name := range []string{"a", "b", "c", "e"} {
				s.Agents[name] = facts.Agent{Connected: true}
			}
			s.elect("d", "d")
		},
		"agents that the operator is about to contact may contradict": func(s *harness) {
			report := s.report("d")
			s.restartOperator()
			s.Agents["d"] = facts.Agent{Connected: true, Report: report}
			s.elect("d", "d")
		},
		"in Available mode, a single agent may have a newer coordinator": func(s *harness) {
			s.setAvailable()
			s.elect("d", "d")
		},
		"in Available mode, one with an older term succeeds": func(s *harness) {
			s.setAvailable()
			s.disconnect("e")
			s.term -= 100
			s.reportCoordinator("d", "a", "b", "c", "d")
		},
		"in Available mode, a term of a list that isn't published does not count": func(s *harness) {
			s.setAvailable()
			s.term = 2 << memberlist.CounterBits
			s.reportCoordinator("d", "d")
		},
		"in Available mode, a term that is out of range does not count": func(s *harness) {
			s.setAvailable()
			s.reportCoordinator("", s.names...)
			s.term = 1 << 63
			s.reportCoordinator("d", "d")
		},
		"in the same term, the higher fencing token wins": func(s *harness) {
			s.setAvailable()
			s.reportCoordinator("d", "a", "b", "d")
		},
		"the fencing token has the place in the list": func(s *harness) {
			s.setAvailable()
			slices.Reverse(s.List.Members)
			s.reportCoordinator("d", "a", "b", "d")
		},
		"a disconnected member does not refute the coordinator": func(s *harness) { s.reportCoordinator("", "a") },
		"more members have lost the coordinator than still report it": func(s *harness) {
			s.reportCoordinator("", "a", "b", "c")
		},
		"as many members have lost the coordinator as still report it, and it is disconnected": func(s *harness) {
			s.reportCoordinator("", "a", "b")
			s.disconnect("e")
		},
		"in Available mode, members of another side do not refute the coordinator": func(s *harness) {
			s.setAvailable()
			s.reportCoordinator("", "a", "b", "c")
		},
		"the coordinator itself reports that it has none": func(s *harness) { s.reportCoordinator("", "e") },
		"the coordinator itself reports that it has none, in Available mode": func(s *harness) {
			s.setAvailable()
			s.reportCoordinator("", "e")
		},
		"in Available mode, the older coordinator remains when the newer one has ended": func(s *harness) {
			s.setAvailable()
			s.elect("d", "c", "d")
			s.reportCoordinator("", "d")
		},
		"in Majority mode, the older coordinator had ended before the newer one": func(s *harness) {
			s.elect("d", "a", "b", "c", "d")
			s.reportCoordinator("", "d")
		},
		"the new coordinator's own report may be late": func(s *harness) {
			s.reportCoordinator("", "d")
			s.elect("d", "a", "b", "c")
		},
		"agents that report an older term do not restore its coordinator": func(s *harness) {
			s.Group.Status.Term += 100
			s.reportCoordinator("d", "a", "b", "c", "d", "e")
			for _, name := range s.names {
				s.report(name).Term += 99
			}
		},
		"agents that use the previous list count": func(s *harness) {
			s.beginList(s.List.Members)
			s.List.Version += 1000
			s.elect("d", "a", "b", "c", "d")
		},
		"terms of a list that the status has lost count": func(s *harness) {
			s.StatusBehind = true
			for _, name := range s.names {
				s.report(name).Version = 9
			}
			s.term = 9 << memberlist.CounterBits
			s.reportCoordinator("d", "a", "b", "c", "d")
		},
		"a coordinator that is not a member does not count": func(s *harness) { s.elect("x", "a") },
		"a coordinator with priority 0 does not count": func(s *harness) {
			s.List.Members[0].Priority = 0
			s.elect("a", "b")
		},
		"a member of the previous list remains coordinator until the next list has settled": func(s *harness) {
			s.beginList(s.List.Members[:4])
		},
		"a member of the previous list is not coordinator when the next list has settled": func(s *harness) {
			s.beginList(s.List.Members[:4])
			s.List.State = v1.ListSettled
			for _, name := range s.names {
				s.report(name).Version = 2
			}
		},
		"an operator that has just started retains the coordinator": (*harness).restartOperator,
		"an operator without connected agents retains the coordinator": func(s *harness) {
			s.disconnect(s.names...)
		},
		"an operator whose reports are older than the status retains the coordinator": (*harness).electForOtherReplica,
		"also if some agents report that they lost the earlier one": func(s *harness) {
			s.electForOtherReplica()
			s.reportCoordinator("", "a", "d", "e")
		},
		"but not if its own agent reports an earlier term since then": func(s *harness) {
			s.electForOtherReplica()
			s.report("d").ChangedAt = s.Now.Add(time.Second)
		},
		"but not if its pod has been deleted": func(s *harness) { s.disconnect(s.names...); delete(s.Pods, "e") },
		"nor if its pod has finished": func(s *harness) {
			s.disconnect(s.names...)
			s.Pods["e"].Status.Phase = corev1.PodSucceeded
		},
		"nor if it is no longer a member": func(s *harness) { s.restartOperator(); s.List.Members = s.List.Members[:4] },
		"agents that have just started do not refute the coordinator": func(s *harness) {
			s.restartOperator()
			s.connect("a")
			s.connect("b")
		},
		"unless one is the coordinator's own agent": func(s *harness) { s.restartOperator(); s.connect("e") },
		"a single agent that has known the coordinator does not refute it, either": func(s *harness) {
			s.restartWithoutCoordinator("a", "b")
		},
		"but a majority does": func(s *harness) { s.restartWithoutCoordinator("a", "b", "c") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(5)
			before := s.evaluate()
			expect.Equalf(t, coordinatorName(&before.Status), "e", "before")
			term := s.Group.Status.Term
			change(s)
			r := s.evaluate()
			cases.Compare(t, name, coordinatorName(&r.Status))
			expect.AtLeastf(t, r.Status.Term, term, "term")
			if r.Status.Coordinator == nil && r.Coordinator != "" {
				t.Errorf("there is no coordinator, but the Service points at %s", r.Coordinator)
			}
		})
	}
}

// electForOtherReplica makes the status name d in a newer term. The reports are older.
func (s *harness) electForOtherReplica() {
	for _, name := range s.names {
		s.report(name).ChangedAt = s.Now.Add(-time.Second)
	}
	s.Group.Status.Term++
	s.Group.Status.Coordinator = &v1.Coordinator{
		Pod: "d", Priority: 40, Term: s.Group.Status.Term, ElectedAt: metav1.NewMicroTime(s.Now),
	}
}

func TestServicePointsAtExistingPod(t *testing.T) {
	s := newHarness(3)
	expect.Equalf(t, s.evaluate().Coordinator, "c", "the Service points at")
	delete(s.Pods, "c")
	expect.Equalf(t, s.evaluate().Coordinator, "", "without its pod")
}

func TestElectedAt(t *testing.T) {
	s := newHarness(3)
	early, late := noon.Add(-time.Second), noon.Add(time.Second+1500*time.Nanosecond)
	s.report("a").ElectedAt, s.report("b").ElectedAt = noon, early
	s.report("c").ElectedAt = late
	if got := s.evaluate().Status.Coordinator.ElectedAt; !got.Equal(
		new(metav1.NewMicroTime(late.Truncate(time.Microsecond)))) {
		t.Errorf("got election time %v, want the one that the coordinator reports", got)
	}
	s.report("c").ElectedAt = early
	if got := s.evaluate().Status.Coordinator.ElectedAt; got.Time.Before(noon) {
		t.Errorf("got election time %v, want the same as before in the same tenure", got)
	}
	s = newHarness(3)
	s.report("b").ElectedAt = early
	s.disconnect("c")
	expect.Equalf(t, s.evaluate().Status.Coordinator.ElectedAt.Time.Equal(early), true,
		"the election time is the earliest one, which b reports")
}

// TestImpossibleElectionTimeIsReplaced: an agent lies, or its clock is wrong.
func TestImpossibleElectionTimeIsReplaced(t *testing.T) {
	for _, reported := range []time.Time{{}, time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), noon.AddDate(0, 0, 2)} {
		s := newHarness(3)
		s.Group.CreationTimestamp = metav1.NewTime(noon.AddDate(0, -1, 0))
		s.report("c").ElectedAt = reported
		if got := s.evaluate().Status.Coordinator.ElectedAt; !got.Time.Equal(s.Now.UTC().Truncate(time.Microsecond)) {
			t.Errorf("reported %v: got election time %v, want %v", reported, got, s.Now)
		}
	}
}

// TestRestartOfOperatorChangesNothing reconnects the agents in several orders.
func TestRestartOfOperatorChangesNothing(t *testing.T) {
	for name, change := range map[string]func(*harness){
		"healthy":                 func(*harness) {},
		"a member is down":        func(s *harness) { s.deletePods("b") },
		"an agent is unreachable": func(s *harness) { s.disconnect("a") },
		"a member is ineligible":  func(s *harness) { s.report("d").Eligible = false },
		"two coordinators":        func(s *harness) { s.setAvailable(); s.elect("d", "c", "d") },
		"no coordinator":          func(s *harness) { s.reportCoordinator("", s.names...); s.crash("e", "d", "c") },
		"a list is being adopted": func(s *harness) { s.beginList(s.List.Members[:4]) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(5)
			s.evaluate()
			change(s)
			s.setTime(time.Minute)
			s.evaluate()
			s.setTime(2 * time.Minute)
			want := s.evaluate().Status
			agents := s.Agents
			order := append([]string{""}, s.names...)
			for range 5 {
				s.restartOperator()
				s.Now = s.Now.Add(time.Minute)
				for _, name := range order {
					if agent, ok := agents[name]; ok {
						s.Agents[name] = agent
					}
					r := s.evaluate()
					expect.Equalf(t, formatTable(&r.Status)+formatHistory(&r.Status)+formatEvents(r.Events),
						formatTable(&want)+formatHistory(&want), "after %s", name)
					for _, of := range []v1.ConditionType{
						v1.ConditionReady, v1.ConditionAvailable, v1.ConditionProgressing, v1.ConditionAgentsConnected,
					} {
						expect.Equalf(t, formatCondition(&r.Status, of), formatCondition(&want, of), "after %s", name)
					}
				}
				order = append(order[:1:1], append(slices.Clone(order[2:]), order[1])...)
			}
		})
	}
}

// restartWithoutCoordinator restarts the operator. It first hears agents that have lost the coordinator.
func (s *harness) restartWithoutCoordinator(names ...string) {
	reports := map[string]*control.Report{}
	for _, name := range names {
		reports[name] = s.report(name)
	}
	s.restartOperator()
	for _, name := range names {
		s.Agents[name] = facts.Agent{Connected: true, Report: reports[name]}
		s.reportCoordinator("", name)
	}
}
