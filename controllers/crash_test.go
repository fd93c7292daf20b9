package controllers_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// brief is a group whose leases, and so whose waits, are short.
func brief(group *v1.ElectionGroup) {
	group.Spec.Timing.HeartbeatMillis = 20
	group.Spec.Safety.LeaseMillis = 60
}

// play is a story in which everything is written that is ever written: a first
// list, an election, other members, another election, another Service.
func (s *stage) play() {
	s.t.Helper()
	for _, pod := range []string{"p-0", "p-1", "p-2", "p-3"} {
		s.pod(pod, "ledger")
	}
	s.declared("ledger", func(group *v1.ElectionGroup) {
		brief(group)
		withService(group)
	}, "p-0", "p-1", "p-2")
	s.awaitAdopted("ledger", 1, "p-0", "p-1", "p-2")
	s.elect("ledger", "p-2", 7)
	s.awaitCoordinator("ledger", "p-2", 7)
	s.awaitRole("p-2", "ledger", v1.RoleCoordinator)

	s.edit("ledger", func(group *v1.ElectionGroup) {
		group.Spec.Members = []v1.Member{{Pod: "p-3", Priority: 40}, {Pod: "p-1", Priority: 30}, {Pod: "p-2", Priority: 20}}
		group.Spec.Service.Name = "ledger-other"
	})
	s.awaitAdopted("ledger", 2, "p-3")
	s.await("who is no member has left", func() bool {
		_, in := s.agents["p-0"].Report("ledger")
		return !in && s.group("ledger").Status.MemberList.State == v1.ListSettled
	})
	s.elect("ledger", "p-3", 9)
	s.awaitCoordinator("ledger", "p-3", 9)
}

// scene is all that there is in the end, without the times.
func (s *stage) scene() string {
	s.t.Helper()
	var text strings.Builder
	say := func(what string, value any) {
		line, err := json.MarshalIndent(value, "", " ")
		if err != nil {
			s.t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s: %s\n", what, line)
	}
	s.sayGroups(say)
	s.sayObjects(say)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.agents)) {
		report, in := s.agents[name].Report("ledger")
		report.UID, report.Revision, report.Generation, report.ElectedAt, report.ChangedAt = "", 0, 0, time.Time{}, time.Time{}
		say("agent "+name, map[string]any{"in": in, "report": report})
	}
	return strings.ReplaceAll(text.String(), s.namespace, "NAMESPACE")
}

func (s *stage) sayGroups(say func(string, any)) {
	s.t.Helper()
	var groups v1.ElectionGroupList
	s.list(&groups)
	for _, group := range groups.Items {
		status := group.Status
		for i := range status.Conditions {
			status.Conditions[i].LastTransitionTime.Reset()
		}
		for i := range status.Processes {
			status.Processes[i].Since = nil
		}
		if status.Coordinator != nil {
			status.Coordinator.ElectedAt.Reset()
		}
		if status.MemberList != nil {
			status.MemberList.Floor = nil
		}
		say("group "+group.Name, status)
	}
}

func (s *stage) sayObjects(say func(string, any)) {
	s.t.Helper()
	var published corev1.ConfigMapList
	s.list(&published, client.HasLabels{v1.LabelGroup})
	for _, m := range published.Items {
		var document control.Document
		if err := yaml.Unmarshal([]byte(m.Data[control.DocumentKey]), &document); err != nil {
			s.t.Fatal(err)
		}
		document.UID, document.Revision, document.Group.Floor = "", 0, 0
		say("ConfigMap "+m.Name, map[string]any{"document": document, "authorities": m.Data[control.CABundleKey] == s.bundle, "labels": m.Labels})
	}
	var services corev1.ServiceList
	s.list(&services)
	for _, service := range services.Items {
		say("Service "+service.Name, map[string]any{"ports": service.Spec.Ports, "labels": service.Labels})
	}
	var endpoints discoveryv1.EndpointSliceList
	s.list(&endpoints)
	for _, slice := range endpoints.Items {
		for i := range slice.Endpoints {
			slice.Endpoints[i].TargetRef.UID = ""
		}
		say("EndpointSlice "+slice.Name, map[string]any{"endpoints": slice.Endpoints, "ports": slice.Ports, "labels": slice.Labels})
	}
	var pods corev1.PodList
	s.list(&pods)
	for _, pod := range pods.Items {
		say("pod "+pod.Name, pod.Labels)
	}
	say("events", s.events())
}

// events are those of ours: the API server has some, too.
func (s *stage) events() []string {
	s.t.Helper()
	var events eventsv1.EventList
	s.list(&events)
	var told []string
	for _, event := range events.Items {
		if event.ReportingController != "conclave.dev/manager" {
			continue
		}
		// Who was the last, an operator that came later doesn't know.
		note, _, _ := strings.Cut(event.Note, ", after")
		told = append(told, event.Type+" "+event.Reason+" "+note)
	}
	return sorted(told)
}

func sorted(words []string) []string {
	slices.Sort(words)
	return words
}

func (s *stage) list(objects client.ObjectList, options ...client.ListOption) {
	s.t.Helper()
	if err := s.client.List(s.t.Context(), objects, append(options, client.InNamespace(s.namespace))...); err != nil {
		s.t.Fatal(err)
	}
}

// awaitScene waits until all is as it should be.
func (s *stage) awaitScene(want string) {
	s.t.Helper()
	late := time.After(30 * time.Second)
	for {
		got := s.scene()
		if got == want {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-late:
			s.t.Fatalf("in the end all should be as it is without any trouble. It differs in this:\n%s", difference(want, got))
		}
	}
}

func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	var text strings.Builder
	for i := 0; i < max(len(a), len(b)); i++ {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			fmt.Fprintf(&text, "line %d\n  want %s\n  got  %s\n", i+1, x, y)
		}
	}
	return text.String()
}

// undisturbed plays the story with one operator, and returns how it ends and
// what was written.
func undisturbed(t *testing.T) (end string, writes []string) {
	t.Helper()
	s := newStage(t)
	a := s.operator(func(a *actor) { a.lull = 20 * time.Millisecond })
	s.play()
	s.awaitRole("p-3", "ledger", v1.RoleCoordinator)
	s.awaitRole("p-0", "ledger", "")
	s.await("the other Service leads there", func() bool { return s.endpoint("ledger-other") == s.ip("p-3") && s.endpoint("ledger-leader") == "" })
	s.await("there are two elections in the events", func() bool { return len(s.events()) == 2 })
	s.awaitQuiet(a)
	return s.scene(), a.written()
}

// awaitQuiet waits until nothing has been written for a while.
func (s *stage) awaitQuiet(a *actor) {
	s.t.Helper()
	const quiet = 25
	count, same := -1, 0
	s.await("nothing more is written", func() bool {
		if n := len(a.written()); n != count {
			count, same = n, 0
		} else {
			same++
		}
		return same > quiet
	})
}

// An operator dies after a write, whichever it is, and another one takes over
// that knows nothing; or a write fails; or it succeeds and nobody is told.
func TestTroubleAfterEachWrite(t *testing.T) {
	end, writes := undisturbed(t)
	t.Logf("undisturbed, this was written: %s", strings.Join(writes, ", "))
	for n := 1; n <= len(writes); n++ {
		for trouble, cause := range map[string]func(*actor){
			"dies":  func(a *actor) { a.last = n },
			"fails": func(a *actor) { a.fails = n },
			"lost":  func(a *actor) { a.lost = n },
		} {
			t.Run(fmt.Sprintf("%s %d %s", trouble, n, writes[n-1]), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				quick := func(a *actor) { a.lull = 20 * time.Millisecond }
				first := s.operator(quick, cause)
				over := make(chan struct{})
				go func() {
					defer close(over)
					<-first.done
					if t.Context().Err() == nil {
						s.operator(quick)
					}
				}()
				s.play()
				s.awaitScene(end)
				if trouble == "dies" {
					first.stop() // It may have got by with fewer writes than the one that was undisturbed.
					<-over
				}
			})
		}
	}
}
