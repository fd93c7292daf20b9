package groupstatus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
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
	expect(t, "at first", formatMap(s.evaluate().Roles), "a=follower b=follower c=coordinator")
	expect(t, "and again", formatMap(s.evaluate().Roles), "a=follower b=follower c=coordinator")
	s.createPod("x").Labels[v1.RoleLabel("ledger")] = v1.RoleCoordinator
	s.createPod("y").Labels[v1.RoleLabel("other")] = v1.RoleCoordinator
	expect(t, "pods that aren't members", formatMap(s.evaluate().Roles), "a=follower b=follower c=coordinator x=")
	expect(t, "they lose it once", formatMap(s.evaluate().Roles), "a=follower b=follower c=coordinator")
	s.reportCoordinator("", s.names...)
	expect(t, "without a coordinator", formatMap(s.evaluate().Roles), "a=follower b=follower c=follower")
	s.Pods["c"].Status.Phase = corev1.PodFailed
	s.deletePod("a")
	expect(t, "without some pods", formatMap(s.evaluate().Roles), "b=follower c=")
	s.elect("b")
	s.List = &v1.MemberList{
		Version: 2, State: v1.ListAdopting, Members: s.List.Members[:1], Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
	}
	expect(t, "a coordinator on its way out", formatMap(s.evaluate().Roles), "b=coordinator")
}

// TestStanding: c leads a, b and c, unless something is wrong with it.
func TestStanding(t *testing.T) {
	deleted := func(s *harness, names ...string) {
		for _, name := range names {
			s.Pods[name].DeletionTimestamp = new(metav1.NewTime(noon))
		}
	}
	cordoned := func(s *harness, names ...string) {
		for _, name := range names {
			s.Nodes["node-"+name].Spec.Unschedulable = true
		}
	}
	for sentence, c := range map[string]struct {
		change func(*harness)
		want   string
	}{
		"all is well":                  {func(*harness) {}, ""},
		"the coordinator is deleted":   {func(s *harness) { deleted(s, "c") }, "c=false"},
		"a follower is deleted":        {func(s *harness) { deleted(s, "a") }, "a=false"},
		"the coordinator's node":       {func(s *harness) { cordoned(s, "c") }, "c=false"},
		"two nodes":                    {func(s *harness) { cordoned(s, "b", "c") }, "b=false c=false"},
		"all nodes":                    {func(s *harness) { cordoned(s, "a", "b", "c") }, ""},
		"all pods":                     {func(s *harness) { deleted(s, "a", "b", "c") }, ""},
		"a node is better than no pod": {func(s *harness) { deleted(s, "b", "c"); cordoned(s, "a") }, "b=false c=false"},
		"what has been told isn't told again": {
			func(s *harness) { cordoned(s, "c"); s.report("c").Excluded, s.report("c").Eligible = true, false }, "",
		},
		"the node is back": {
			func(s *harness) { s.report("c").Excluded, s.report("c").Eligible = true, false }, "c=true",
		},
		"nobody else is up": {
			func(s *harness) { cordoned(s, "c"); s.crash("a"); s.crash("b") }, "",
		},
		"nobody else is up any more": {
			func(s *harness) {
				cordoned(s, "c")
				s.report("c").Excluded, s.report("c").Eligible = true, false
				s.crash("a")
				s.crash("b")
			}, "c=true",
		},
		"who was kept from it is better than one that is deleted": {
			func(s *harness) {
				cordoned(s, "c")
				s.report("c").Excluded, s.report("c").Eligible = true, false
				s.crash("a")
				deleted(s, "b")
			}, "b=false c=true",
		},
		"nobody else would stand": {
			func(s *harness) { cordoned(s, "c"); s.report("a").Eligible, s.report("b").Eligible = false, false }, "",
		},
		"the others never stand": {
			func(s *harness) { cordoned(s, "c"); s.List.Members[0].Priority, s.List.Members[1].Priority = 0, 0 }, "",
		},
		"the others take the only other one for dead": {
			func(s *harness) { cordoned(s, "c"); s.crash("a"); s.reportStatus("Crashed", "b", "c") }, "",
		},
		"who never stands isn't told": {
			func(s *harness) { s.List.Members[0].Priority = 0; deleted(s, "a") }, "",
		},
		"who isn't heard isn't told": {
			func(s *harness) { cordoned(s, "c"); s.disconnect("c") }, "",
		},
		"a node that isn't known isn't cordoned": {
			func(s *harness) { delete(s.Nodes, "node-c") }, "",
		},
		"the pod is gone, and its agent still answers": {
			func(s *harness) { delete(s.Pods, "c") }, "c=false",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newHarness(3)
			s.evaluate()
			c.change(s)
			expect(t, "orders", formatMap(s.evaluate().Eligibility), c.want)
		})
	}
}

func TestLeave(t *testing.T) {
	s := newHarness(3)
	s.createPod("x")
	s.connect("x")
	s.report("a").UID = "old"
	s.Agents["y"] = AgentState{Connected: true}
	s.connect("z").UID = "old"
	s.disconnect("z")
	expect(t, "who isn't a member, or of an earlier group", strings.Join(s.evaluate().Leave, " "), "a x")
	s.report("a").UID = string(uid)
	s.List = &v1.MemberList{
		Version: 2, State: v1.ListAdopting, Members: s.List.Members[:2], Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
	}
	expect(t, "c isn't told before the list has settled", strings.Join(s.evaluate().Leave, " "), "x")
	s.List.State = v1.ListSettled
	expect(t, "and then it is", strings.Join(s.evaluate().Leave, " "), "c x")
	s.StatusBehind = true
	expect(t, "nor is anybody while agents go by a newer list", strings.Join(s.evaluate().Leave, " "), "")
	s.StatusBehind, s.List = false, nil
	expect(t, "without a list nobody is", strings.Join(s.evaluate().Leave, " "), "")
	s.report("a").UID, s.report("x").UID = "old", "old"
	expect(t, "but those in an earlier group", strings.Join(s.evaluate().Leave, " "), "a x")
}
