package groupstatus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
)

func formatMap[V any](of map[string]V) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s=%v", key, of[key]))
	}
	return strings.Join(all, " ")
}

func TestRoles(t *testing.T) {
	s := newHarness(3)
	expect.Equalf(t, formatMap(s.evaluate().Roles), "a=follower b=follower c=coordinator", "at first")
	expect.Equalf(t, formatMap(s.evaluate().Roles), "a=follower b=follower c=coordinator", "and again")
	s.createPod("x").Labels[v1.RoleLabel("ledger")] = v1.RoleCoordinator
	s.createPod("y").Labels[v1.RoleLabel("other")] = v1.RoleCoordinator
	expect.Equalf(t, formatMap(s.evaluate().Roles), "a=follower b=follower c=coordinator x=",
		"with the labels of pods that are not members")
	expect.Equalf(t, formatMap(s.evaluate().Roles), "a=follower b=follower c=coordinator", "after their removal")
	s.reportCoordinator("", s.names...)
	expect.Equalf(t, formatMap(s.evaluate().Roles), "a=follower b=follower c=follower", "without a coordinator")
	s.Pods["c"].Status.Phase = corev1.PodFailed
	s.deletePods("a")
	expect.Equalf(t, formatMap(s.evaluate().Roles), "b=follower c=", "without some pods")
	s.Pods["b"].Annotations = nil
	expect.Equalf(t, formatMap(s.evaluate().Roles), "b=follower",
		"with an annotation that was removed while its agent runs")
	s.disconnect("b")
	expect.Equalf(t, formatMap(s.evaluate().Roles), "b=", "with a pod that has not opted in")
	s.connect("b")
	s.elect("b")
	s.beginList(s.List.Members[:1])
	expect.Equalf(t, formatMap(s.evaluate().Roles), "b=coordinator", "with a coordinator that leaves the list")
}

// TestEligibility begins each case with c as the coordinator of a, b and c.
func TestEligibility(t *testing.T) {
	cases := golden.Open(t, "testdata/eligibility.txt")
	cordoned := func(s *harness, names ...string) {
		for _, name := range names {
			s.Nodes["node-"+name].Spec.Unschedulable = true
		}
	}
	evacuated := func(s *harness, until string, names ...string) {
		for _, name := range names {
			s.Nodes["node-"+name].Annotations = map[string]string{v1.AnnotationEvacuateUntil: until}
		}
	}
	for name, change := range map[string]func(*harness){
		"the coordinator's node is evacuated":   func(s *harness) { evacuated(s, "2026-06-01T12:00:01Z", "c") },
		"the evacuation of a node has ended":    func(s *harness) { evacuated(s, "2026-06-01T12:00:00Z", "c") },
		"the annotation of a node isn't a time": func(s *harness) { evacuated(s, "tomorrow", "c") },
		"one node is evacuated, and another cordoned": func(s *harness) {
			evacuated(s, "2026-06-01T13:00:00Z", "c")
			cordoned(s, "b")
		},
		"all nodes are evacuated":                func(s *harness) { evacuated(s, "2026-06-01T13:00:00Z", "a", "b", "c") },
		"healthy":                                func(*harness) {},
		"the coordinator's pod is being deleted": func(s *harness) { s.terminate("c") },
		"the only member's pod is being deleted": func(s *harness) { s.List.Members = s.List.Members[2:]; s.terminate("c") },
		"a follower's pod is being deleted":      func(s *harness) { s.terminate("a") },
		"the coordinator's node is cordoned":     func(s *harness) { cordoned(s, "c") },
		"two nodes are cordoned":                 func(s *harness) { cordoned(s, "b", "c") },
		"all nodes are cordoned":                 func(s *harness) { cordoned(s, "a", "b", "c") },
		"all pods are being deleted":             func(s *harness) { s.terminate("a", "b", "c") },
		"a cordoned node is better than a pod that is being deleted": func(s *harness) {
			s.terminate("b", "c")
			cordoned(s, "a")
		},
		"the member has been excluded before": func(s *harness) {
			cordoned(s, "c")
			s.report("c").Excluded, s.report("c").Eligible = true, false
		},
		"the node is uncordoned": func(s *harness) { s.report("c").Excluded, s.report("c").Eligible = true, false },
		"no other member is up":  func(s *harness) { cordoned(s, "c"); s.crash("a", "b") },
		"no other member is up any more": func(s *harness) {
			cordoned(s, "c")
			s.report("c").Excluded, s.report("c").Eligible = true, false
			s.crash("a", "b")
		},
		"an excluded member is better than one whose pod is being deleted": func(s *harness) {
			cordoned(s, "c")
			s.report("c").Excluded, s.report("c").Eligible = true, false
			s.crash("a")
			s.terminate("b")
		},
		"the others are ineligible": func(s *harness) {
			cordoned(s, "c")
			s.report("a").Eligible, s.report("b").Eligible = false, false
		},
		"the others have priority 0": func(s *harness) {
			cordoned(s, "c")
			s.List.Members[0].Priority, s.List.Members[1].Priority = 0, 0
		},
		"the only other member is reported as crashed": func(s *harness) {
			cordoned(s, "c")
			s.crash("a")
			s.reportStatus("Crashed", "b", "c")
		},
		"a member with priority 0": func(s *harness) {
			s.List.Members[0].Priority = 0
			s.terminate("a")
		},
		"a disconnected member": func(s *harness) { cordoned(s, "c"); s.disconnect("c") },
		"an unknown node":       func(s *harness) { delete(s.Nodes, "node-c") },
		"the pod does not exist, and its agent is connected": func(s *harness) { delete(s.Pods, "c") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(3)
			s.evaluate()
			change(s)
			cases.Compare(t, name, formatMap(s.evaluate().Eligibility))
		})
	}
}

// The operator evaluates a group again when the evacuation of a node ends.
func TestEvacuationEnds(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.Nodes["node-c"].Annotations = map[string]string{v1.AnnotationEvacuateUntil: "2026-06-01T14:30:00+02:00"}
	if got, want := s.evaluate().RequeueAt, noon.Add(30*time.Minute); !got.Equal(want) {
		t.Errorf("got requeue at %v, want %v", got, want)
	}
	s.Now = noon.Add(30 * time.Minute)
	if got := s.evaluate().RequeueAt; !got.IsZero() {
		t.Errorf("after the end: got requeue at %v, want none", got)
	}
}

func TestLeave(t *testing.T) {
	s := newHarness(3)
	s.createPod("x")
	s.connect("x")
	s.report("a").UID = "old"
	s.Agents["y"] = facts.Agent{Connected: true}
	s.connect("z").UID = "old"
	s.disconnect("z")
	expect.Equalf(t, strings.Join(s.evaluate().Leave, " "), "a x", "pods that are not members, or in an earlier group")
	s.report("a").UID = string(uid)
	s.beginList(s.List.Members[:2])
	expect.Equalf(t, strings.Join(s.evaluate().Leave, " "), "x", "c does not leave before the list has settled")
	s.List.State = v1.ListSettled
	expect.Equalf(t, strings.Join(s.evaluate().Leave, " "), "c x", "and then it leaves")
	s.StatusBehind = true
	expect.Equalf(t, strings.Join(s.evaluate().Leave, " "), "", "while agents use a newer list")
	s.StatusBehind, s.List = false, nil
	expect.Equalf(t, strings.Join(s.evaluate().Leave, " "), "", "without a list")
	s.report("a").UID, s.report("x").UID = "old", "old"
	expect.Equalf(t, strings.Join(s.evaluate().Leave, " "), "a x", "without a list, pods in an earlier group")
}
