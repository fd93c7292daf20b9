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

func sorted[V any](of map[string]V) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s=%v", key, of[key]))
	}
	return strings.Join(all, " ")
}

func TestRoles(t *testing.T) {
	s := newScene(3)
	expect(t, "at first", sorted(s.make().Roles), "a=follower b=follower c=coordinator")
	expect(t, "and again", sorted(s.make().Roles), "a=follower b=follower c=coordinator")
	s.run("x").Labels[v1.RoleLabel("ledger")] = v1.RoleCoordinator
	s.run("y").Labels[v1.RoleLabel("other")] = v1.RoleCoordinator
	expect(t, "pods that aren't members", sorted(s.make().Roles), "a=follower b=follower c=coordinator x=")
	expect(t, "they lose it once", sorted(s.make().Roles), "a=follower b=follower c=coordinator")
	s.name("", s.names...)
	expect(t, "without a coordinator", sorted(s.make().Roles), "a=follower b=follower c=follower")
	s.Pods["c"].Status.Phase = corev1.PodFailed
	s.gone("a")
	expect(t, "without some pods", sorted(s.make().Roles), "b=follower c=")
	s.lead("b")
	s.List = &v1.MemberList{
		Version: 2, State: v1.ListAdopting, Members: s.List.Members[:1], Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
	}
	expect(t, "a coordinator on its way out", sorted(s.make().Roles), "b=coordinator")
}

// TestStanding: c leads a, b and c, unless something is wrong with it.
func TestStanding(t *testing.T) {
	deleted := func(s *scene, names ...string) {
		for _, name := range names {
			s.Pods[name].DeletionTimestamp = new(metav1.NewTime(noon))
		}
	}
	cordoned := func(s *scene, names ...string) {
		for _, name := range names {
			s.Nodes["node-"+name].Spec.Unschedulable = true
		}
	}
	for sentence, c := range map[string]struct {
		change func(*scene)
		want   string
	}{
		"all is well":                  {func(*scene) {}, ""},
		"the coordinator is deleted":   {func(s *scene) { deleted(s, "c") }, "c=false"},
		"a follower is deleted":        {func(s *scene) { deleted(s, "a") }, "a=false"},
		"the coordinator's node":       {func(s *scene) { cordoned(s, "c") }, "c=false"},
		"two nodes":                    {func(s *scene) { cordoned(s, "b", "c") }, "b=false c=false"},
		"all nodes":                    {func(s *scene) { cordoned(s, "a", "b", "c") }, ""},
		"all pods":                     {func(s *scene) { deleted(s, "a", "b", "c") }, ""},
		"a node is better than no pod": {func(s *scene) { deleted(s, "b", "c"); cordoned(s, "a") }, "b=false c=false"},
		"what has been told isn't told again": {
			func(s *scene) { cordoned(s, "c"); s.said("c").Excluded, s.said("c").Eligible = true, false }, "",
		},
		"the node is back": {
			func(s *scene) { s.said("c").Excluded, s.said("c").Eligible = true, false }, "c=true",
		},
		"nobody else is up": {
			func(s *scene) { cordoned(s, "c"); s.kill("a"); s.kill("b") }, "",
		},
		"nobody else is up any more": {
			func(s *scene) {
				cordoned(s, "c")
				s.said("c").Excluded, s.said("c").Eligible = true, false
				s.kill("a")
				s.kill("b")
			}, "c=true",
		},
		"who was kept from it is better than one that is deleted": {
			func(s *scene) {
				cordoned(s, "c")
				s.said("c").Excluded, s.said("c").Eligible = true, false
				s.kill("a")
				deleted(s, "b")
			}, "b=false c=true",
		},
		"nobody else would stand": {
			func(s *scene) { cordoned(s, "c"); s.said("a").Eligible, s.said("b").Eligible = false, false }, "",
		},
		"the others never stand": {
			func(s *scene) { cordoned(s, "c"); s.List.Members[0].Priority, s.List.Members[1].Priority = 0, 0 }, "",
		},
		"the others take the only other one for dead": {
			func(s *scene) { cordoned(s, "c"); s.kill("a"); s.mark("Crashed", "b", "c") }, "",
		},
		"who never stands isn't told": {
			func(s *scene) { s.List.Members[0].Priority = 0; deleted(s, "a") }, "",
		},
		"who isn't heard isn't told": {
			func(s *scene) { cordoned(s, "c"); s.lose("c") }, "",
		},
		"a node that isn't known isn't cordoned": {
			func(s *scene) { delete(s.Nodes, "node-c") }, "",
		},
		"the pod is gone, and its agent still answers": {
			func(s *scene) { delete(s.Pods, "c") }, "c=false",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newScene(3)
			s.make()
			c.change(s)
			expect(t, "orders", sorted(s.make().Eligibility), c.want)
		})
	}
}

func TestLeave(t *testing.T) {
	s := newScene(3)
	s.run("x")
	s.hear("x")
	s.said("a").UID = "old"
	s.Agents["y"] = AgentState{Connected: true}
	s.hear("z").UID = "old"
	s.lose("z")
	expect(t, "who isn't a member, or of an earlier group", strings.Join(s.make().Leave, " "), "a x")
	s.said("a").UID = string(uid)
	s.List = &v1.MemberList{
		Version: 2, State: v1.ListAdopting, Members: s.List.Members[:2], Previous: &v1.PreviousList{Version: 1, Members: s.List.Members},
	}
	expect(t, "c isn't told before the list has settled", strings.Join(s.make().Leave, " "), "x")
	s.List.State = v1.ListSettled
	expect(t, "and then it is", strings.Join(s.make().Leave, " "), "c x")
	s.StatusBehind = true
	expect(t, "nor is anybody while agents go by a newer list", strings.Join(s.make().Leave, " "), "")
	s.StatusBehind, s.List = false, nil
	expect(t, "without a list nobody is", strings.Join(s.make().Leave, " "), "")
	s.said("a").UID, s.said("x").UID = "old", "old"
	expect(t, "but those in an earlier group", strings.Join(s.make().Leave, " "), "a x")
}
