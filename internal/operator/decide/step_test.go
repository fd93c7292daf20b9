package decide

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// format formats actions for agents and traffic, as in "a eligible; a follower, c coordinator; 1 events".
func format(a *Actions) string {
	var commands, labels []string
	for _, c := range a.Commands {
		text := c.Pod + " excluded"
		switch {
		case c.Leave != nil:
			text = fmt.Sprintf("%s leaves %s below %d", c.Pod, c.Leave.UID, c.Leave.Revision)
		case c.Eligible:
			text = c.Pod + " eligible"
		}
		commands = append(commands, text)
	}
	if a.Traffic == nil {
		return strings.Join(commands, ", ") + "; none"
	}
	for _, l := range slices.Concat(a.Traffic.Demotions, a.Traffic.Labels) {
		labels = append(labels, strings.TrimSpace(l.Pod.Name+" "+l.Role))
	}
	return fmt.Sprintf("%s; %s; %d events", strings.Join(commands, ", "), strings.Join(labels, ", "),
		len(a.Traffic.Events))
}

// An election is one status, the labels of the former coordinator, the next one and others, in this order, and an
// Event. After that, there is nothing to do.
func TestElection(t *testing.T) {
	o := newElectedOperator()
	expect.Equalf(t, o.apply().Status == nil, true, "a healthy group keeps its status")
	o.createPod("d")
	o.Agents["d"].Report.Revision = 1 // A later document prevails over the command, and not the one that it lacks.
	delete(o.Pods["b"].Labels, v1.RoleLabel("ledger"))
	o.elect("a", firstTerm+1, "a", "b", "c")
	o.Now = o.Now.Add(time.Second)
	actions := o.apply()
	want := fmt.Sprintf("d leaves 6f0c below %d; c follower, a coordinator, b follower; 1 events", noon.UnixMilli())
	expect.Equalf(t, format(&actions), want, "actions")
	expect.Equalf(t, actions.Traffic.Coordinator, "a", "coordinator")
	expect.Equalf(t, actions.Limit, LimitElections, "limit")
	expect.Equalf(t, o.Group.Status.Coordinator.Pod, "a", "coordinator in the status")
	delete(o.Pods, "d")
	delete(o.Agents, "d")
	for range 3 {
		actions = o.apply()
		if format(&actions) != "; ; 0 events" || actions.Status != nil || actions.Publishes {
			t.Errorf("got %s and status %+v, want nothing more", format(&actions), actions.Status)
		}
		o.Now = o.Now.Add(time.Hour)
	}
}

// Each kind of change has its limit. What only agents cause has one, and an edit hasn't.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*operator)
		want      Limit
		publishes bool
	}{
		"an election": {func(o *operator) { o.elect("b", firstTerm+1, "a", "b", "c") }, LimitElections, false},
		"a loss":      {func(o *operator) { o.elect("", firstTerm, "a", "b", "c") }, LimitElections, false},
		"a row":       {func(o *operator) { o.Agents["a"].Report.Eligible = false }, LimitChanges, false},
		"an address":  {func(o *operator) { o.Pods["a"].Status.PodIP = "10.0.0.77" }, LimitChanges, true},
		"an edit":     {func(o *operator) { o.Group.Spec.Members = o.Group.Spec.Members[1:] }, NoLimit, true},
		"an edit during an election": {func(o *operator) {
			o.Group.Spec.Members = o.Group.Spec.Members[1:]
			o.elect("b", firstTerm+1, "a", "b", "c")
		}, NoLimit, true},
		"a setting": {func(o *operator) { o.Group.Spec.Algorithm, o.Group.Generation = v1.Bully, 2 }, LimitChanges, true},
	} {
		o := newElectedOperator()
		o.Now = o.Now.Add(time.Hour)
		c.change(o)
		actions := o.step()
		if actions.Status == nil || actions.Limit != c.want || actions.Publishes != c.publishes {
			t.Errorf("%s: got limit %d, publishes %t, status %+v, want limit %d and %t", name, actions.Limit, actions.Publishes,
				actions.Status, c.want, c.publishes)
		}
	}
}

// Neither an edit waits for the group's turn to write, nor that a list settles.
func TestListsFromAgents(t *testing.T) {
	list := func(change func(*v1.MemberList)) *v1.MemberList {
		l := newOperator().MemberList()
		change(l)
		return l
	}
	was := list(func(*v1.MemberList) {})
	for name, c := range map[string]struct {
		change func(*v1.MemberList)
		want   bool
	}{
		"only the document changes": {func(*v1.MemberList) {}, true},
		"an identity":               {func(l *v1.MemberList) { l.Identities = map[string]v1.Identity{"a": "1"} }, true},
		"another identity, or term": {func(l *v1.MemberList) { l.Version, l.State = 2, v1.ListAdopting }, true},
		"other members":             {func(l *v1.MemberList) { l.Version, l.Members = 2, l.Members[1:] }, false},
		"another lease":             {func(l *v1.MemberList) { l.Version, l.LeaseMillis = 2, 7 }, false},
		"a member departs":          {func(l *v1.MemberList) { l.Departed = []string{"a"} }, false},
		"the list settles":          {func(l *v1.MemberList) { l.State = v1.ListAdopting }, false},
	} {
		expect.Equalf(t, isFromAgents(was, list(c.change)), c.want, "%s", name)
	}
	expect.Equalf(t, isFromAgents(nil, was), false, "the first list is from agents")
}

// A Service points at the former coordinator for half a second, unless there is the next one.
func TestServiceKeepsFormerCoordinator(t *testing.T) {
	o := newElectedOperator()
	o.elect("", firstTerm, "a", "b", "c")
	lost := o.Now
	for _, at := range []struct {
		after time.Duration
		keeps bool
	}{{0, true}, {vacancyMax - 1, true}, {1, false}, {time.Hour, false}} {
		o.Now = o.Now.Add(at.after)
		actions := o.apply()
		expect.Equalf(t, actions.Traffic.KeepsEndpoint, at.keeps, "%s after the loss: the endpoint remains", o.Now.Sub(lost))
		if at.keeps {
			expect.Equalf(t, actions.WakeAt.Sub(lost), vacancyMax, "wakes after the loss")
		}
	}
	o.elect("b", firstTerm+1, "a", "b", "c")
	o.apply()
	o.elect("", firstTerm+1, "a", "b", "c")
	expect.Equalf(t, o.apply().Traffic.KeepsEndpoint, true, "after the next loss, the endpoint remains")
}

// The API server refuses a status. The next one says why, the traffic follows as if it had been written, and the
// election counts when it is in the status.
func TestRefusedStatus(t *testing.T) {
	o := newElectedOperator()
	o.elect("a", firstTerm+1, "a", "b", "c")
	o.Group.Spec.Members, o.Group.Generation = o.Group.Spec.Members[:2], 2
	o.Errors.Status = "it is odd"
	actions := o.apply()
	ready := meta.FindStatusCondition(actions.Status.Conditions, string(v1.ConditionReady))
	expect.Containsf(t, ready.Message, "it is odd", "message")
	expect.Equalf(t, actions.Status.Coordinator.Pod, "c", "coordinator in the status")
	expect.Equalf(t, actions.Traffic.Coordinator, "a", "coordinator of the traffic")
	expect.Equalf(t, actions.Status.Protocol.MemberList.Version, 2, "version of the list, which is published all the same")
	expect.Lenf(t, actions.Traffic.Events, 0, "events")
	expect.Equalf(t, actions.Measures.Elected, false, "the election is counted")
	o.Errors.Status = ""
	actions = o.apply()
	expect.Equalf(t, o.Group.Status.Coordinator.Pod, "a", "coordinator in the status")
	expect.Equalf(t, actions.Measures.Elected, true, "the election is counted")
}

// Finalizers precede a document. If they can't be written, elections go on with the present one.
func TestFinalizersPrecedeDocuments(t *testing.T) {
	o := newElectedOperator()
	document := *o.Group.Status.Protocol.Document
	o.Group.Spec.Safety.Mode, o.Group.Generation = v1.Strict, 2
	o.elect("a", firstTerm+1, "a", "b", "c")
	actions, memory := Step(&o.Facts, o.memory)
	expect.Lenf(t, actions.Hold, 3, "pods to hold")
	expect.Equalf(t, actions.Traffic == nil && actions.Status == nil && actions.Document == nil, true,
		"nothing else is done")
	o.memory, o.HoldTried, o.HoldFailed, o.Errors.Publish = memory, true, true, "forbidden"
	actions, _ = Step(&o.Facts, o.memory)
	expect.Equalf(t, actions.Document == nil, true, "no document is pushed")
	expect.Equalf(t, *actions.Status.Protocol.Document, document, "document")
	expect.Equalf(t, actions.Status.Coordinator.Pod, "a", "coordinator")
	ready := meta.FindStatusCondition(actions.Status.Conditions, string(v1.ConditionReady))
	expect.Containsf(t, ready.Message, "forbidden", "message")
	o.HoldFailed, o.Errors.Publish = false, ""
	actions, _ = Step(&o.Facts, o.memory)
	expect.Equalf(t, actions.Publishes, true, "publishes after the finalizers are written")
	for _, pod := range o.Pods {
		pod.Finalizers = []string{v1.StopFinalizer("ledger")}
	}
	o.Pods["c"].DeletionTimestamp = new(metav1.NewTime(o.Now))
	o.elect("a", firstTerm, "a", "b", "c")
	expect.Equalf(t, o.step().WakeAt.Sub(o.Now), 10*time.Second, "wakes to report that the end of a pod is unknown")
	o.Group.Spec.Safety.Mode = v1.Majority
	expect.Lenf(t, o.step().Release, 3, "pods to release")
}

// Nobody leaves because of a list before the status has it. Agents of an earlier group get the next document instead.
func TestCommandsToLeave(t *testing.T) {
	o := newElectedOperator()
	o.Group.Spec.Members, o.Group.Generation = o.Group.Spec.Members[1:], 2
	for step, want := range []string{"", "", "a leaves 6f0c below"} {
		o.Now = o.Now.Add(time.Hour)
		actions := o.apply()
		commands, _, _ := strings.Cut(format(&actions), ";")
		if !strings.HasPrefix(commands, want) || want == "" && commands != "" {
			t.Errorf("step %d with list %+v: got commands %q, want %q", step, o.MemberList(), commands, want)
		}
		list := o.MemberList()
		o.change(func(a *facts.Agent) {
			if int64(a.Report.Version) < list.Version {
				a.Report.Version, a.AdoptedAt = uint32(list.Version), o.Now
			}
		}, "a", "b", "c")
	}
	o.Agents["b"].Report.UID = "earlier"
	actions := o.step()
	expect.Equalf(t, strings.Contains(format(&actions), "b leaves"), false, "a member in an earlier group leaves")
	expect.EqualSlicesf(t, actions.Document.First, []string{"b"}, "pods that begin with the document")
}

// An alert depends on it: it fires for agents that name two coordinators, and not while settings propagate.
func TestDividedMeansDifferentCoordinators(t *testing.T) {
	for reason, want := range map[v1.Reason]struct{ disagreeing, divided bool }{
		"":                          {false, false},
		v1.ReasonCoordinatorsDiffer: {true, true},
		v1.ReasonListsDiffer:        {true, false},
		v1.ReasonSettingsDiffer:     {true, false},
	} {
		got := newOperator().newStep().gauges(&groupstatus.Result{Disagreement: reason})
		if got.Disagreeing != want.disagreeing || got.Divided != want.divided {
			t.Errorf("%s: got %+v, want %+v", reason, got, want)
		}
	}
	o := newElectedOperator()
	gauges := o.step().Gauges
	if gauges.Vacant || gauges.Connected != 3 || gauges.Expected != 3 || gauges.Behind || gauges.Refused {
		t.Errorf("got gauges %+v of a healthy group", gauges)
	}
	o.GroupsMax = 7
	expect.Equalf(t, o.step().Gauges.Refused, true, "a group beyond the maximum is refused")
}

// TestFailoversAfterFailuresCountSeparately: planned changes are much faster.
func TestFailoversAfterFailuresCountSeparately(t *testing.T) {
	for reason, want := range map[v1.EndReason]string{
		v1.EndCrash: "failure", v1.EndSessionClosed: "failure", v1.EndStepDown: "planned",
		v1.EndPodDeleted: "planned", v1.EndUnknown: "unknown",
	} {
		if got := endOfTenureBefore(
			[]v1.Tenure{{Pod: "b"}, {Pod: "c", EndReason: reason}, {Pod: "b", EndReason: v1.EndSilence}}); got != want {
			t.Errorf("%s: got %s, want %s", reason, got, want)
		}
	}
	expect.Equalf(t, endOfTenureBefore([]v1.Tenure{{Pod: "b"}}), "unknown", "first tenure")
}

// A failover took as long as agents have measured. It counts once.
func TestFailoverIsMeasured(t *testing.T) {
	o := newElectedOperator()
	o.elect("a", firstTerm+1, "a", "b", "c")
	o.change(func(a *facts.Agent) {
		a.Report.Ended = &control.Ending{
			Coordinator: "c", Term: firstTerm, Cause: control.EndCrash, GapMicros: new(int64(5000)),
		}
	}, "a")
	got := o.apply().Measures
	if got.Failover == nil || *got.Failover != 5*time.Millisecond || got.End != EndFailure {
		t.Errorf("got %+v, want a failover of 5 ms", got)
	}
	expect.Equalf(t, o.step().Measures.Elected, false, "it counts again")
	o.elect("b", firstTerm+2, "a", "b", "c")
	expect.Equalf(t, o.step().Measures.Failover == nil, true, "a failover that nobody has measured counts")
}

// The lag counts from the first change that agents report after the last step. An operator that starts doesn't know it.
func TestLagIsMeasured(t *testing.T) {
	o := newElectedOperator()
	o.memory = Memory{}
	expect.Equalf(t, o.apply().Measures.FirstChange.IsZero(), true, "unknown in the first step")
	o.Now = o.Now.Add(time.Second)
	changed := o.Now
	o.elect("a", firstTerm+1, "a")
	o.Now = o.Now.Add(time.Second)
	o.elect("a", firstTerm+1, "b", "c")
	expect.Equalf(t, o.apply().Measures.FirstChange, changed, "first change")
	expect.Equalf(t, o.apply().Measures.FirstChange.IsZero(), true, "none after that")
}

// The connections to agents that others report as crashed are verified.
func TestSuspectsAreVerified(t *testing.T) {
	o := newElectedOperator()
	o.change(func(a *facts.Agent) {
		a.Report.Processes = []control.Row{
			{Name: "a", Status: "Crashed"}, {Name: "b", Status: "Crashed"}, {Name: "x", Status: "Crashed"},
		}
	}, "a", "c")
	expect.EqualSlicesf(t, o.step().Verify, []string{"a", "b"}, "suspects")
	o.change(func(a *facts.Agent) { a.Connected = false }, "a", "c")
	expect.Lenf(t, o.step().Verify, 0, "suspects of agents that aren't connected")
}

// Without a permission for Services, the status says so, and a conflict of names is checked again.
func TestServiceProblems(t *testing.T) {
	o := newElectedOperator()
	o.Group.Spec.Service = &v1.CoordinatorService{Name: "front"}
	o.Service = &corev1.Service{}
	o.ServicesPermitted = true
	expect.Equalf(t, o.apply().WakeAt.Sub(o.Now), 30*time.Second, "wakes to check the Service of another owner")
	o.Service.Labels = map[string]string{v1.LabelGroup: "ledger"}
	o.Errors.Routing, o.Errors.ServicesDenied = "patch is denied", true
	actions := o.step()
	ready := meta.FindStatusCondition(actions.Status.Conditions, string(v1.ConditionReady))
	expect.Equalf(t, ready.Reason, string(v1.ReasonServicesForbidden), "reason")
	expect.Containsf(t, ready.Message, "patch is denied", "message")
	o.ServicesForbidden, o.ServicesPermitted, o.Errors = true, false, facts.Errors{}
	expect.Equalf(t, o.step().WakeAt.IsZero(), true, "doesn't wake before the permission comes")
}
