package controllers_test

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// One agent that claims to have seen the last revision that there can be neither
// has the operator write all the time nor keeps the others from what is new.
func TestRevisionOutOfThisWorld(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	before := len(a.written())
	s.agents["ledger-0"].ChangeReport("ledger", func(r *control.Report) { r.Revision = math.MaxInt64 })
	s.awaitQuiet(a)
	if writes := a.written()[before:]; len(writes) > 10 {
		t.Errorf("one lie has it write %d times: %v", len(writes), writes[:10])
	}
	s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
	s.await("the others have the new settings", func() bool {
		report, _ := s.agents["ledger-1"].Report("ledger")
		return report.Generation == 2 && report.Revision < math.MaxInt64/2
	})
}

// A backup restores the status, observedGeneration with it, of a group whose
// generations are counted anew.
func TestStatusOfLaterGenerations(t *testing.T) {
	s := newStage(t)
	for _, pod := range []string{"p-0", "p-1", "p-2"} {
		s.pod(pod, "ledger")
	}
	group := s.declared("ledger", brief, "p-0", "p-1", "p-2")
	group.Status.ObservedGeneration = 7
	if err := s.client.Status().Update(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	s.operator()
	s.awaitAdopted("ledger", 1, "p-0", "p-1", "p-2")
}

// Whatever somebody writes into the ConfigMap, it is put right.
func TestConfigMapOfNumbersThatMakeNoSense(t *testing.T) {
	for name, spoil := range map[string]func(*control.Document){
		"generation": func(d *control.Document) { d.Generation = 999 },
		"version": func(d *control.Document) {
			d.Group.Version = 9
			d.Group.Previous = &control.List{Version: 8, Members: d.Group.Members}
		},
		"revision": func(d *control.Document) { d.Revision = math.MaxInt64 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			a := s.operator()
			s.settled(a)
			var published corev1.ConfigMap
			if err := s.client.Get(t.Context(), s.key(control.ConfigMapName("ledger")), &published); err != nil {
				t.Fatal(err)
			}
			document := s.document("ledger")
			spoil(&document)
			text, err := yaml.Marshal(document)
			if err != nil {
				t.Fatal(err)
			}
			published.Data[control.DocumentKey] = string(text)
			if err := s.client.Update(t.Context(), &published); err != nil {
				t.Fatal(err)
			}
			s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
			s.await("it is put right", func() bool {
				now := s.document("ledger")
				return now.Generation == 2 && now.Group.Version == 1 && now.Group.Algorithm == "Bully" && now.Revision > 0 && now.Revision < math.MaxInt64/2
			})
		})
	}
}

// docs/adr/0009: a group that is made anew with quite other members begins when the
// old one's agents have left: nothing else keeps the two apart.
func TestGroupOfOtherMembersWaitsForTheOldOne(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	old := s.group("ledger")
	latest := time.Now().Add(time.Hour).UnixMilli() // The clock of an operator before was ahead.
	for _, pod := range []string{"ledger-0", "ledger-1", "ledger-2"} {
		agent := s.agents[pod]
		agent.ChangeReport("ledger", func(r *control.Report) { r.Revision = latest })
		agent.Refuse(func(call fakeagent.Call) int {
			if call.Method == http.MethodDelete {
				return http.StatusServiceUnavailable // It still hands over.
			}
			return 0
		})
	}
	for _, pod := range []string{"x-0", "x-1", "x-2"} {
		s.pod(pod, "ledger")
	}
	if err := s.client.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	s.declared("ledger", brief, "x-0", "x-1", "x-2")
	s.await("it is said why it doesn't begin", func() bool {
		ready := meta.FindStatusCondition(s.group("ledger").Status.Conditions, string(v1.Ready))
		return ready != nil && ready.Reason == string(v1.ReasonEarlierGroup) && strings.HasPrefix(ready.Message, "ledger-0, ledger-1 and ledger-2 are")
	})
	for _, pod := range []string{"ledger-0", "ledger-1", "ledger-2"} {
		s.await("who is in the old group was told to leave", func() bool {
			return slices.ContainsFunc(s.agents[pod].Calls(), func(call fakeagent.Call) bool { return call.Method == http.MethodDelete })
		})
	}
	s.awaitQuiet(a)
	if s.in("x-0", "ledger") {
		t.Error("the new group has begun while a coordinator of the old one may lead")
	}
	s.agents["ledger-0"].Leave("ledger")
	s.agents["ledger-1"].Leave("ledger")
	s.await("the last one is named", func() bool {
		ready := meta.FindStatusCondition(s.group("ledger").Status.Conditions, string(v1.Ready))
		return strings.HasPrefix(ready.Message, "ledger-2 is")
	})
	if err := s.agents["ledger-2"].Stop(); err != nil { // Who can't be heard isn't waited for.
		t.Fatal(err)
	}
	s.awaitAdopted("ledger", 1, "x-0", "x-1", "x-2")
	if revision := s.document("ledger").Revision; revision <= latest {
		t.Errorf("who has left the old group would refuse revision %d: it has seen %d", revision, latest)
	}
}

// An agent knows the groups that its pod named when it was made. A pod that names
// another one since is of no use to that.
func TestPodThatNamesAGroupTooLate(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	for _, pod := range []string{"p-0", "p-1", "p-2"} {
		s.podLike(pod, []string{"ledger"}, func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "ledger"} })
	}
	s.pod("other", "audit")
	for _, name := range []string{"p-0", "p-1", "p-2"} {
		pod := &corev1.Pod{}
		if err := s.client.Get(t.Context(), s.key(name), pod); err != nil {
			t.Fatal(err)
		}
		pod.Annotations[v1.AnnotationGroups] = "ledger,audit"
		if err := s.client.Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "audit"}}
	group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "ledger"}}
	group.Spec.PriorityFrom = &v1.PriorityFrom{Ordinal: v1.HighestFirst}
	if err := s.client.Create(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	s.await("the operator has looked", func() bool { return s.group("audit").Status.ObservedGeneration == 1 })
	s.awaitQuiet(a)
	if list := s.group("audit").Status.MemberList; list != nil {
		t.Errorf("members whose agents can't take part: %+v", list.Members)
	}
	connected := meta.FindStatusCondition(s.group("audit").Status.Conditions, string(v1.AgentsConnected))
	if connected.Reason != string(v1.ReasonNoAgent) || !strings.Contains(connected.Message, "p-0, p-1 and p-2 run with an agent that takes no part") {
		t.Errorf("what has to be done isn't said: %+v", connected)
	}
}
