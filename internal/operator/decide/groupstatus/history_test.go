package groupstatus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
)

// reportEnd makes agents report the end of the tenure of a coordinator in the harness's
// term; a gap below 0 is not known.
func (s *harness) reportEnd(coordinator string, cause control.EndCause, gap time.Duration, agents ...string) {
	for _, agent := range agents {
		ended := &control.Ending{Coordinator: coordinator, Term: s.term, Cause: cause, At: s.Now}
		if gap >= 0 {
			ended.GapMicros = new(gap.Microseconds())
		}
		s.report(agent).Ended = ended
	}
}

// requestDeletion requests the deletion of a pod at a time after noon.
func (s *harness) requestDeletion(pod string, after time.Duration) {
	const grace = 30
	s.Pods[pod].DeletionTimestamp = new(metav1.NewTime(noon.Add(after + grace*time.Second)))
	s.Pods[pod].DeletionGracePeriodSeconds = new(int64(grace))
}

// formatHistory formats the history, as in "2 b after 4.8 ms | 1 c until 10s Crash".
func formatHistory(status *v1.ElectionGroupStatus) string {
	var all []string
	for i := range status.History {
		t := &status.History[i]
		text := fmt.Sprint(t.Number, " ", t.Pod)
		if gap, known := t.Gap(); known {
			text += " after " + v1.FormatGap(gap)
		}
		if t.Until != nil {
			text += fmt.Sprint(" until ", t.Until.Sub(noon), " ", t.EndReason)
		}
		all = append(all, text)
	}
	return strings.Join(all, " | ")
}

// evaluatedHistory evaluates the group, and formats its history.
func (s *harness) evaluatedHistory() string {
	s.evaluate()
	return formatHistory(&s.Group.Status)
}

// TestTenures: c leads from noon on, and loses the office ten seconds later.
func TestTenures(t *testing.T) {
	cases := golden.Open(t, "testdata/tenures.txt")
	for name, end := range map[string]func(*harness){
		"the survivors saw a crash, and the new coordinator measured the gap": func(s *harness) {
			s.crash("c")
			s.reportEnd("c", control.EndCrash, 9*time.Millisecond, "a")
			s.reportEnd("c", control.EndCrash, 4800*time.Microsecond, "b")
			s.elect("b")
		},
		"without the new coordinator's own measurement, the longest counts": func(s *harness) {
			s.crash("c")
			s.reportEnd("c", control.EndCrash, 9*time.Millisecond, "a")
			s.reportEnd("c", control.EndCrash, -1, "b")
			s.elect("b")
		},
		"the coordinator itself knows that it was asked to step down": func(s *harness) {
			s.reportEnd("c", control.EndHandOver, 160*time.Microsecond, "a", "b")
			s.reportEnd("c", control.EndStepDown, 200*time.Microsecond, "c")
			s.elect("b")
		},
		"a user whom the API server knows asked it to step down": func(s *harness) {
			s.Pods["c"].Annotations[v1.AnnotationStepDownBy] = v1.FormatStepDownBy("ledger", int64(s.term), "alice@example.org")
			s.reportEnd("c", control.EndStepDown, -1, "c")
			s.elect("b")
		},
		"a user asked it to step down, and it crashed": func(s *harness) {
			s.Pods["c"].Annotations[v1.AnnotationStepDownBy] = v1.FormatStepDownBy("ledger", int64(s.term), "alice@example.org")
			s.reportEnd("c", control.EndCrash, -1, "b")
			s.elect("b")
		},
		"the coordinator told the others why, and is gone": func(s *harness) {
			s.crash("c")
			s.reportEnd("c", control.EndSessionClosed, 580*time.Microsecond, "a", "b")
			s.elect("b")
		},
		"its agent was stopped": func(s *harness) { s.reportEnd("c", control.EndStopped, -1, "a", "b"); s.elect("b") },
		"its agent was stopped because its pod was deleted": func(s *harness) {
			s.requestDeletion("c", 9*time.Second)
			s.reportEnd("c", control.EndStopped, -1, "a", "b")
			s.elect("b")
		},
		"the operator excluded it because its node was cordoned": func(s *harness) {
			s.reportEnd("c", control.EndExcluded, -1, s.names...)
			s.elect("b")
		},
		"a pod that is deleted crashed nevertheless": func(s *harness) {
			s.requestDeletion("c", 9*time.Second)
			s.reportEnd("c", control.EndCrash, -1, "a", "b")
			s.elect("b")
		},
		"an agent that learned of the end from the successor doesn't know": func(s *harness) {
			s.reportEnd("c", control.EndUnknown, -1, "a", "c")
			s.reportEnd("c", control.EndSilence, 498*time.Millisecond, "b")
			s.elect("b")
		},
		"no agent knows": func(s *harness) { s.elect("b") },
		"a cause that this operator does not know": func(s *harness) {
			s.reportEnd("c", control.EndUnknown, -1, s.names...)
			s.elect("b")
		},
		"the end of another tenure does not count": func(s *harness) {
			s.reportEnd("a", control.EndCrash, time.Millisecond, s.names...)
			s.elect("b")
		},
		"a gap that is longer than the tenure before does not end that before it began": func(s *harness) {
			s.reportEnd("c", control.EndCrash, time.Hour, "b")
			s.elect("b")
		},
		"the same pod again": func(s *harness) { s.reportEnd("c", control.EndLapse, 2*time.Second, "c"); s.elect("c") },
		"the coordinator has resigned, and there is no next one yet": func(s *harness) {
			s.reportEnd("c", control.EndHandOver, -1, s.names...)
			s.reportCoordinator("", s.names...)
		},
		"the tenure lasts": func(s *harness) { s.reportEnd("c", control.EndSilence, time.Millisecond, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(3)
			s.evaluate()
			s.setTime(10 * time.Second)
			end(s)
			r := s.evaluate()
			cases.Compare(t, name, formatHistory(&r.Status)+"\n"+formatEvents(r.Events))
		})
	}
}

// TestHistoryKeepsTenTenures also numbers them: the first of all is number 1.
func TestHistoryKeepsTenTenures(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	for i := range 13 {
		s.setTime(time.Duration(i+1) * time.Second)
		s.elect(s.names[i%3])
		s.evaluate()
	}
	history := s.Group.Status.History
	if len(history) != 10 || history[0].Number != 14 || history[9].Number != 5 {
		t.Errorf("got %d tenures, want 10 with the numbers 14 to 5: %s", len(history), formatHistory(&s.Group.Status))
	}
}

// TestHistoryCausesNoWrite: what agents report about an end later is added when the status
// is written for another reason.
func TestHistoryCausesNoWrite(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.Group.Status.History = nil // as an operator without history has left it
	expect.Equalf(t, s.evaluatedHistory(), "", "an old status")
	s.setTime(10 * time.Second)
	s.crash("c")
	s.reportEnd("c", control.EndHandOver, -1, "a", "b")
	s.elect("b")
	s.evaluate()
	const before = "2 b | 1 c until 10s HandOver"
	expect.Equalf(t, formatHistory(&s.Group.Status), before, "history")
	s.term--
	s.reportEnd("c", control.EndHandOver, 5*time.Second, "a", "b")
	s.term++
	expect.Equalf(t, s.evaluatedHistory(), before, "a better report")
	s.connect("c")
	s.reportStatus("Normal", "c", "a", "b")
	s.term--
	s.reportEnd("c", control.EndStepDown, -1, "c")
	s.elect("b", "c")
	expect.Equalf(t, s.evaluatedHistory(), "2 b | 1 c until 10s StepDown", "when c is up again")
}

// TestDeletionThatIsSeenLater: the deletion of a pod explains the end of a tenure, unless it was requested only
// afterwards.
func TestDeletionThatIsSeenLater(t *testing.T) {
	for requested, want := range map[time.Duration]string{
		9 * time.Second:  "2 b | 1 c until 10s PodDeleted",
		11 * time.Second: "2 b | 1 c until 10s SessionClosed",
	} {
		s := newHarness(3)
		s.evaluate()
		s.setTime(10 * time.Second)
		s.reportEnd("c", control.EndSessionClosed, -1, s.names...)
		s.elect("b")
		expect.Equalf(t, s.evaluatedHistory(), "2 b | 1 c until 10s SessionClosed", "before the operator sees it")
		s.setTime(12 * time.Second)
		s.requestDeletion("c", requested)
		expect.Equalf(t, s.evaluatedHistory(), want, "%s", fmt.Sprint("requested after ", requested))
	}
}

// TestTenureThatLastsAgain: in Available mode, the older coordinator remains when the newer one has ended.
func TestTenureThatLastsAgain(t *testing.T) {
	s := newHarness(5)
	s.setAvailable()
	s.evaluate()
	s.setTime(10 * time.Second)
	s.elect("b", "a", "b")
	expect.Equalf(t, s.evaluatedHistory(), "2 b | 1 e until 10s Unknown", "two coordinators")
	s.setTime(20 * time.Second)
	s.reportCoordinator("", "a", "b")
	expect.Equalf(t, s.evaluatedHistory(), "1 e | 2 b until 20s Unknown", "one has ended")
	s.setTime(30 * time.Second)
	s.elect("c")
	expect.Equalf(t, s.evaluatedHistory(), "3 c | 1 e until 30s Unknown | 2 b until 20s Unknown", "the next number is new")
}

// TestGapsThatNoAgentMeasured: the history has those that the operator has seen.
func TestGapsThatNoAgentMeasured(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.setTime(time.Minute)
	s.reportCoordinator("", s.names...)
	s.evaluate()
	s.setTime(2 * time.Minute)
	s.elect("b")
	expect.Equalf(t, s.evaluatedHistory(), "2 b after 1m0s | 1 c until 1m0s Unknown", "the operator has seen a gap")
	s.setTime(3 * time.Minute)
	s.elect("a")
	s.setTime(4 * time.Minute)
	expect.Equalf(t, s.evaluatedHistory(), "3 a | 2 b after 1m0s until 3m0s Unknown | 1 c until 1m0s Unknown",
		"it learns of the end later")
}
