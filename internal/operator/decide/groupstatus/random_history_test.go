package groupstatus

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var (
	histories = flag.Int("histories", 90, "number of random histories")
	seed      = flag.Uint64("seed", 1, "seed of the first history")
)

// TestRandomHistories checks the invariants of statuses in random histories, likely or
// not: with old terms, agents that contradict each other or are disconnected, pods that
// are created and deleted, lists that change, and restarts of the operator.
func TestRandomHistories(t *testing.T) {
	for i := range uint64(*histories) {
		h := randomHistory{harness: newHarness(1 + int(i%6)), rng: rand.New(rand.NewPCG(*seed+i, 0)), t: t, seed: *seed + i}
		h.Group.Spec.Safety.Mode = []v1.SafetyMode{v1.Available, v1.Majority, v1.Strict}[i%3]
		for range 60 {
			for range 1 + h.rng.IntN(3) {
				h.randomEvent()
			}
			h.evaluateAndCheck()
			if t.Failed() {
				t.Fatalf("replay it with -run TestRandomHistories -histories 1 -seed %d (with %d members, mode %s)",
					h.seed, len(h.names), h.Group.Spec.Safety.Mode)
			}
		}
	}
}

type randomHistory struct {
	*harness
	rng  *rand.Rand
	t    *testing.T
	seed uint64
}

func (h *randomHistory) randomName() string { return h.names[h.rng.IntN(len(h.names))] }

// randomReport returns a random pod, and whether it has a report.
func (h *randomHistory) randomReport() (name string, ok bool) {
	name = h.randomName()
	return name, h.report(name) != nil
}

// randomEvent makes a random change.
func (h *randomHistory) randomEvent() {
	name, reports := h.randomReport()
	switch h.rng.IntN(16) {
	case 0:
		h.Now = h.Now.Add(time.Duration(h.rng.IntN(4000)) * time.Millisecond)
	case 1:
		h.connect(name)
	case 2:
		h.disconnect(name)
	case 3:
		delete(h.Agents, name)
	case 4:
		h.changePod(name)
	case 5:
		h.changeList()
	case 6:
		if h.rng.IntN(5) == 0 {
			h.restartOperator()
		}
	case 7:
		node := h.Nodes["node-"+name]
		node.Spec.Unschedulable = !node.Spec.Unschedulable
	case 8, 9:
		h.term += uint64(h.rng.IntN(3))
		h.reportCoordinator(h.randomName(), h.names...)
	default:
		if reports {
			h.changeReport(name)
		}
	}
}

// changeReport changes an agent's report, possibly to an invalid one.
func (h *randomHistory) changeReport(name string) {
	report := h.report(name)
	switch h.rng.IntN(9) {
	case 0:
		report.UID = []string{string(uid), string(uid), "old"}[h.rng.IntN(3)]
	case 1:
		report.Version = uint32(h.List.Version)
		if previous := h.List.Previous; previous != nil {
			report.Version = uint32([]int64{h.List.Version, previous.Version, previous.Version - 1}[h.rng.IntN(3)])
		}
	case 2:
		report.Eligible, report.Excluded = h.rng.IntN(2) == 0, h.rng.IntN(2) == 0
	case 3:
		report.Digest = []string{"d", "d", "other"}[h.rng.IntN(3)]
	case 4:
		h.reportStatus([]string{"Normal", "Crashed", "Coordinator", "Invalid"}[h.rng.IntN(4)], h.randomName(), name)
	case 5:
		h.reportCoordinator("", name)
	case 6:
		report.Term = []uint64{
			0, h.term - 5, h.term + 7, uint64(control.FirstTerm(uint32(h.List.Version))) + 1, h.term + 1<<40, 1 << 63,
		}[h.rng.IntN(6)]
	default:
		h.term += uint64(h.rng.IntN(2))
		h.reportCoordinator(h.randomName(), name)
	}
}

func (h *randomHistory) changePod(name string) {
	pod, there := h.Pods[name]
	switch {
	case !there:
		h.createPod(name)
	case h.rng.IntN(3) == 0:
		delete(h.Pods, name)
	case h.rng.IntN(3) == 0:
		pod.DeletionTimestamp = new(metav1.NewTime(h.Now))
	default:
		phases := []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodFailed}
		pod.Status.Phase = phases[h.rng.IntN(len(phases))]
	}
}

// changeList settles the list, or begins another one.
func (h *randomHistory) changeList() {
	if h.List.State == v1.ListAdopting {
		h.List = h.List.DeepCopy()
		h.List.State = v1.ListSettled
		return
	}
	next := &v1.MemberList{
		Version: h.List.Version + 1 + int64(h.rng.IntN(2)*h.rng.IntN(1000)), State: v1.ListAdopting,
		Previous: &v1.PreviousList{Version: h.List.Version, Members: h.List.Members},
	}
	for i, name := range h.names {
		if h.rng.IntN(3) > 0 {
			next.Members = append(next.Members, v1.Member{Pod: name, Priority: int32(10 * (i + 1 + h.rng.IntN(2)*len(h.names)))})
		}
	}
	next.Members = append(next.Members, v1.Member{Pod: h.randomName(), Priority: 5})
	for i, m := range next.Members[:len(next.Members)-1] {
		if m.Pod == next.Members[len(next.Members)-1].Pod {
			next.Members = append(next.Members[:i], next.Members[i+1:]...)
			break
		}
	}
	h.List = next
}

// evaluateAndCheck evaluates the group, and checks the invariants.
func (h *randomHistory) evaluateAndCheck() {
	t, before := h.t, h.Group.Status.DeepCopy()
	first, second := Evaluate(&h.Facts, &h.Plan), Evaluate(&h.Facts, &h.Plan)
	if !reflect.DeepEqual(first, second) {
		t.Error("got different results from the same facts")
	}
	if !equality.Semantic.DeepEqual(*before, h.Group.Status) {
		t.Error("the evaluation has changed its facts")
	}
	h.checkUsualRows()
	h.checkTerms(before, &first.Status)
	h.checkTable(&first.Status)
	h.checkInstructions(&first)
	if !first.RequeueAt.IsZero() && !first.RequeueAt.After(h.Now) {
		t.Error("got a requeue time that is not after the current time")
	}
	// The API server stores times with a lower resolution.
	data, err := json.Marshal(first.Status)
	must.Succeed(t, err)
	h.Group.Status = v1.ElectionGroupStatus{}
	must.Succeed(t, json.Unmarshal(data, &h.Group.Status))
	again := Evaluate(&h.Facts, &h.Plan)
	if !equality.Semantic.DeepEqual(again.Status, h.Group.Status) || len(again.Events) > 0 {
		t.Errorf("the status is not stable; got events %s, status\n%+v\nand then\n%+v", formatEvents(again.Events),
			h.Group.Status, again.Status)
	}
}

func (h *randomHistory) checkTerms(before, after *v1.ElectionGroupStatus) {
	c := after.Coordinator
	switch {
	case after.Term < before.Term:
		h.t.Errorf("the term decreased from %d to %d", before.Term, after.Term)
	case c == nil:
	case c.Term > after.Term:
		h.t.Errorf("got coordinator of term %d, newer than term %d", c.Term, after.Term)
	case c.Term < after.Term && h.Group.Spec.Safety.Mode != v1.Available:
		h.t.Errorf("got coordinator of term %d, older than term %d", c.Term, after.Term)
	case c.Priority < 1 || c.ElectedAt.IsZero():
		h.t.Errorf("got coordinator %+v", c)
	}
}

// vacancies are the reasons for which there is no coordinator.
var vacancies = []v1.Reason{v1.ReasonElecting, v1.ReasonNoMajority, v1.ReasonNoEligibleMember, v1.ReasonMembersTooSlow}

func (h *randomHistory) checkTable(status *v1.ElectionGroupStatus) {
	if len(status.Processes) != len(h.List.Members) || len(status.Conditions) != 5 {
		h.t.Errorf("got %d rows for %d members, and %d conditions", len(status.Processes),
			len(h.List.Members), len(status.Conditions))
	}
	last := int32(v1.MaxPriority)
	for i := range status.Processes {
		row := &status.Processes[i]
		isCoordinator := status.Coordinator != nil && status.Coordinator.Pod == row.Pod
		if isCoordinator != (row.Status == v1.ProcessCoordinator) || row.Priority > last ||
			len(row.Message) > 256 || row.Since == nil {
			h.t.Errorf("got coordinator %s, and the row %+v", coordinatorName(status), row)
		}
		last = row.Priority
	}
	available := meta.FindStatusCondition(status.Conditions, string(v1.ConditionAvailable))
	if vacant := slices.Contains(vacancies, v1.Reason(available.Reason)); vacant && status.Coordinator != nil {
		h.t.Errorf("got coordinator %s, and Available has the reason %s", coordinatorName(status), available.Reason)
	}
	isTrue := func(of v1.ConditionType) bool { return meta.IsStatusConditionTrue(status.Conditions, string(of)) }
	if isTrue(v1.ConditionReady) && (!isTrue(v1.ConditionAvailable) || isTrue(v1.ConditionProgressing)) ||
		isTrue(v1.ConditionAvailable) && status.Coordinator == nil {
		h.t.Errorf("got coordinator %s and conditions %+v", coordinatorName(status), status.Conditions)
	}
	if allUp := int(*status.ReadyMembers) == len(status.Processes); !allUp && !isTrue(v1.ConditionDegraded) {
		h.t.Errorf("got a group that is not degraded with %d of %d members up", *status.ReadyMembers, len(status.Processes))
	}
}

// checkInstructions checks that the operator never excludes all members, and that no member has to leave.
func (h *randomHistory) checkInstructions(r *Result) {
	able, allowed := 0, 0
	for _, row := range r.Status.Processes {
		agent := h.Agents[row.Pod]
		if report := agent.Report; agent.Connected && report != nil && report.UID == string(uid) &&
			row.Priority > 0 && isUp(&row) {
			may, changed := r.Eligibility[row.Pod]
			if report.Eligible || report.Excluded {
				able++
				if changed && may || !changed && !report.Excluded {
					allowed++
				}
			}
		}
	}
	// An agent that uses an old list does not count, and gets no command.
	if able > 0 && allowed == 0 && len(r.Eligibility) > 0 {
		for name, may := range r.Eligibility {
			if !may {
				h.t.Errorf("%s is excluded, and no other member could be elected: %s", name, formatMap(r.Eligibility))
			}
		}
	}
	for _, name := range r.Leave {
		if report := h.report(name); report.UID == string(uid) && h.isIn(name) {
			h.t.Errorf("%s has to leave, but is a member", name)
		}
	}
}

func (h *randomHistory) isIn(name string) bool {
	for _, m := range h.List.Members {
		if m.Pod == name {
			return true
		}
	}
	return false
}
