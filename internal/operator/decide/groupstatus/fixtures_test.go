package groupstatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const uid = types.UID("6f0c")

// noon is the time at which each harness starts, and firstTerm the first term of its list.
var noon = time.Date(2026, time.June, 1, 12, 0, 0, 0, time.UTC)

const firstTerm = 1 << 16

// harness is a group of pods a, b, c, ... with priorities 10, 20, 30, ... Initially, the
// last pod is the coordinator, and the group is healthy.
type harness struct {
	facts.Facts
	membership.Plan

	names []string
	term  uint64
}

func newHarness(members int) *harness {
	s := &harness{term: firstTerm}
	s.Group = &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger", UID: uid, Generation: 1}}
	s.Pods, s.Nodes, s.Agents, s.Now = map[string]*corev1.Pod{}, map[string]*corev1.Node{}, map[string]facts.Agent{}, noon
	for i := range members {
		name := string(rune('a' + i))
		s.names = append(s.names, name)
		s.Group.Spec.Members = append(s.Group.Spec.Members, v1.Member{Pod: name, Priority: int32(10 * (i + 1))})
		s.createPod(name)
		node := "node-" + name
		s.Nodes[node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		s.Nodes[node].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	s.List = &v1.MemberList{Version: 1, State: v1.ListSettled, Members: s.Group.Spec.Members}
	for _, name := range s.names {
		s.connect(name)
	}
	s.elect(s.names[members-1])
	return s
}

// beginList begins the next list.
func (s *harness) beginList(members []v1.Member) {
	before := s.List
	s.List = &v1.MemberList{
		Version: before.Version + 1, State: v1.ListAdopting, Members: members,
		Previous: &v1.PreviousList{Version: before.Version, Members: before.Members},
	}
}

// createPod creates a running pod with an agent.
func (s *harness) createPod(name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "bank", Name: name, UID: types.UID("pod-" + name),
			Labels:      map[string]string{v1.LabelAgent: v1.AgentEnabled},
			Annotations: map[string]string{v1.AnnotationGroups: "other, ledger"},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-" + name, InitContainers: []corev1.Container{{Name: v1.AgentContainer}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
	}
	s.Pods[name] = pod
	return pod
}

// setZone sets the zone of the node of a pod.
func (s *harness) setZone(pod, zone string) {
	s.Nodes["node-"+pod].Labels = map[string]string{corev1.LabelTopologyZone: zone}
}

// move moves a pod to a new node in a zone.
func (s *harness) move(pod, node, zone string) {
	s.Pods[pod].Spec.NodeName = node
	s.Nodes[node] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelTopologyZone: zone}},
	}
}

// connect connects an agent that does not know a coordinator yet.
func (s *harness) connect(name string) *control.Report {
	report := &control.Report{
		Group: "ledger", Pod: name, UID: string(uid), Generation: s.Group.Generation, Revision: 1,
		Version: uint32(s.List.Version), Digest: "d", Electing: true, Eligible: true,
	}
	for _, m := range slices.Backward(s.List.Members) {
		report.Processes = append(report.Processes,
			control.Row{Name: m.Pod, Priority: uint32(m.Priority), Status: "Normal", Connected: true})
	}
	s.Agents[name] = facts.Agent{Connected: true, Report: report}
	return report
}

// report returns an agent's report, which the test may change.
func (s *harness) report(name string) *control.Report { return s.Agents[name].Report }

// reportCoordinator makes agents report a coordinator in the harness's term; "" means none.
func (s *harness) reportCoordinator(coordinator string, agents ...string) {
	for _, agent := range agents {
		report := s.report(agent)
		if report == nil {
			continue
		}
		report.Coordinator, report.Electing = coordinator, coordinator == ""
		if coordinator != "" {
			report.Term, report.ElectedAt = s.term, s.Now
		}
		for i := range report.Processes {
			row := &report.Processes[i]
			switch {
			case row.Name == coordinator:
				row.Status = "Coordinator"
			case row.Status == "Coordinator":
				row.Status = "Normal"
			}
		}
	}
}

func (s *harness) setAvailable() { s.Group.Spec.Safety.Mode = v1.Available }

// elect makes agents report a pod as coordinator in the next term, by default all.
func (s *harness) elect(coordinator string, agents ...string) {
	if s.term++; len(agents) == 0 {
		agents = s.names
	}
	s.reportCoordinator(coordinator, agents...)
}

// reportStatus makes agents report a status of a pod.
func (s *harness) reportStatus(status, pod string, agents ...string) {
	for _, agent := range agents {
		for i := range s.report(agent).Processes {
			if row := &s.report(agent).Processes[i]; row.Name == pod {
				row.Status, row.Connected = status, status != "Crashed"
			}
		}
	}
}

// disconnect disconnects agents from the operator.
func (s *harness) disconnect(agents ...string) {
	for _, agent := range agents {
		s.Agents[agent] = facts.Agent{
			Problem: "dial tcp 10.0.0.1:7375: connect: connection refused", Report: s.Agents[agent].Report,
		}
	}
}

// crash crashes the processes of pods: the operator cannot reach their agents, and the others report the crash.
func (s *harness) crash(names ...string) {
	for _, name := range names {
		s.disconnect(name)
		for _, other := range s.names {
			if other != name && s.Agents[other].Connected {
				s.reportStatus("Crashed", name, other)
			}
		}
	}
}

// deletePods crashes pods, and deletes them from the API server.
func (s *harness) deletePods(names ...string) {
	for _, name := range names {
		s.crash(name)
		delete(s.Pods, name)
		delete(s.Agents, name)
	}
}

// terminate requests the deletion of pods.
func (s *harness) terminate(names ...string) {
	for _, name := range names {
		s.Pods[name].DeletionTimestamp = new(metav1.NewTime(noon))
	}
}

// restartOperator drops what the operator knows about agents.
func (s *harness) restartOperator() { s.Agents = map[string]facts.Agent{} }

// evaluate evaluates the group, and stores the status and the role labels.
func (s *harness) evaluate() Result {
	r := Evaluate(&s.Facts, &s.Plan)
	s.Group.Status = *r.Status.DeepCopy()
	for name, role := range r.Roles {
		s.Pods[name].Labels[v1.RoleLabel("ledger")] = role
		if role == "" {
			delete(s.Pods[name].Labels, v1.RoleLabel("ledger"))
		}
	}
	return r
}

// setTime sets the clock to a time after noon.
func (s *harness) setTime(after time.Duration) { s.Now = noon.Add(after) }

// formatTable formats the process status table, as in "c Coordinator, b Normal, a Crashed (PodMissing)".
func formatTable(status *v1.ElectionGroupStatus) string {
	var rows []string
	for i := range status.Processes {
		row := &status.Processes[i]
		text := row.Pod + " " + string(row.Status)
		if row.Reason != "" {
			text += " (" + string(row.Reason) + ")"
		}
		rows = append(rows, text)
	}
	return strings.Join(rows, ", ")
}

// formatCondition formats a condition, as in "False MembersDown: 1 of 3 members is down: a".
func formatCondition(status *v1.ElectionGroupStatus, of v1.ConditionType) string {
	for _, c := range status.Conditions {
		if c.Type == string(of) {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

func coordinatorName(status *v1.ElectionGroupStatus) string {
	if status.Coordinator == nil {
		return "none"
	}
	return status.Coordinator.Pod
}

func formatEvents(events []Event) string {
	var all []string
	for _, e := range events {
		all = append(all, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Note))
	}
	return strings.Join(all, " | ")
}
