package controllers_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// A group is deleted and elections happen while no operator runs.
func TestOperatorWasAway(t *testing.T) {
	s := newStage(t)
	first := s.operator()
	pods := []string{"p-0", "p-1", "p-2"}
	for _, pod := range pods {
		s.pod(pod, "ledger", "audit")
	}
	s.declared("ledger", func(group *v1.ElectionGroup) {
		brief(group)
		withService(group)
	}, pods...)
	s.declared("audit", brief, pods...)
	s.awaitAdopted("ledger", 1, pods...)
	s.awaitAdopted("audit", 1, pods...)
	s.elect("ledger", "p-2", 7)
	s.elect("audit", "p-2", 7)
	s.awaitCoordinator("ledger", "p-2", 7)
	s.awaitRole("p-2", "audit", v1.RoleCoordinator)
	s.awaitQuiet(first)
	first.stop()

	if err := s.client.Delete(t.Context(), s.group("audit")); err != nil {
		t.Fatal(err)
	}
	s.elect("ledger", "p-1", 8)
	s.deletePod("p-2")
	s.elect("ledger", "p-0", 9)
	s.operator()
	s.awaitCoordinator("ledger", "p-0", 9)
	s.awaitRole("p-0", "ledger", v1.RoleCoordinator)
	s.await("the Service follows", func() bool { return s.endpoint("ledger-leader") == s.ip("p-0") })
	s.awaitRole("p-1", "audit", "")
	s.awaitRole("p-0", "audit", "")
	s.await("nobody is in the group that is gone", func() bool { return !s.in("p-0", "audit") && !s.in("p-1", "audit") })
}

// A group is deleted while an election runs, and made anew under the same name.
func TestGroupIsMadeAnew(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	before := s.document("ledger")
	s.elect("ledger", "", 7)
	if err := s.client.Delete(t.Context(), s.group("ledger")); err != nil {
		t.Fatal(err)
	}
	s.declared("ledger", brief, "ledger-0", "ledger-1")
	s.awaitAdopted("ledger", 1, "ledger-0", "ledger-1")
	s.await("who is no member has left", func() bool { return !s.in("ledger-2", "ledger") })
	after := s.document("ledger")
	if after.UID == before.UID || after.Revision <= before.Revision {
		t.Errorf("the new group's document must be newer than the old one's: before %+v, after %+v", before, after)
	}
	s.elect("ledger", "ledger-1", 5)
	s.awaitCoordinator("ledger", "ledger-1", 5)
	s.awaitRole("ledger-2", "ledger", "")
}

// A term that was seen stays, whatever agents say that forgot everything.
func TestTermNeverGoesBack(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	s.elect("ledger", "ledger-0", 5)
	s.await("who has an old term doesn't lead", func() bool { return s.group("ledger").Status.Coordinator == nil })
	if term := s.group("ledger").Status.Term; term != 7 {
		t.Errorf("the term was 7 and is %d", term)
	}
	a.stop()
	s.operator()
	s.elect("ledger", "ledger-0", 8)
	s.awaitCoordinator("ledger", "ledger-0", 8)
}

// What somebody has written over the document doesn't matter: the status remembers.
func TestConfigMapIsSpoilt(t *testing.T) {
	s := newStage(t)
	first := s.operator()
	for _, pod := range []string{"p-0", "p-1", "p-2"} {
		s.pod(pod, "ledger")
	}
	s.declared("ledger", brief, "p-0", "p-1", "p-2")
	s.awaitAdopted("ledger", 1, "p-0", "p-1", "p-2")
	s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Members = group.Spec.Members[:2] })
	s.awaitList("ledger", 2, "p-0", "p-1")
	s.awaitQuiet(first)
	first.stop()
	var published corev1.ConfigMap
	if err := s.client.Get(t.Context(), s.key(control.ConfigMapName("ledger")), &published); err != nil {
		t.Fatal(err)
	}
	published.Data[control.DocumentKey] = "spoilt"
	if err := s.client.Update(t.Context(), &published); err != nil {
		t.Fatal(err)
	}
	s.operator()
	s.await("the ConfigMap is made again", func() bool {
		if err := s.client.Get(t.Context(), s.key(control.ConfigMapName("ledger")), &published); err != nil {
			return false
		}
		return published.Data[control.DocumentKey] != "spoilt" && s.document("ledger").Group.Version == 2
	})
	s.await("agents that have seen more go by it", func() bool {
		report, _ := s.agents["p-0"].Report("ledger")
		return report.Revision == s.document("ledger").Revision
	})
}

// Agents that were given new authorities accept those that the old ones don't know.
func TestAuthoritiesChange(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	before := s.document("ledger").Revision
	s.mu.Lock()
	s.bundle += string(newWardrobe(t).Authorities)
	want, turned := s.bundle, s.turned
	s.turned = make(chan struct{})
	s.mu.Unlock()
	close(turned)
	s.await("the ConfigMap has the new ones", func() bool {
		var published corev1.ConfigMap
		if err := s.client.Get(t.Context(), s.key(control.ConfigMapName("ledger")), &published); err != nil {
			t.Fatal(err)
		}
		return published.Data[control.CABundleKey] == want
	})
	if after := s.document("ledger").Revision; after != before {
		t.Errorf("the document is the same, but its revision has gone from %d to %d", before, after)
	}
}

// What the operator made, and somebody else changes or deletes, is put right.
func TestWhatIsOursIsPutRight(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	address := s.ip("ledger-2")
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: control.ConfigMapName("ledger")}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "ledger-leader"}},
	} {
		if err := s.client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		s.await("it is there again", func() bool { return s.client.Get(t.Context(), client.ObjectKeyFromObject(object), object) == nil })
	}
	pod := &corev1.Pod{}
	if err := s.client.Get(t.Context(), s.key("ledger-0"), pod); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(pod.DeepCopy())
	pod.Labels[v1.RoleLabel("ledger")] = v1.RoleCoordinator
	if err := s.client.Patch(t.Context(), pod, patch); err != nil {
		t.Fatal(err)
	}
	s.awaitRole("ledger-0", "ledger", v1.RoleFollower)
	if got := s.endpoint("ledger-leader"); got != address {
		t.Errorf("the Service leads to %q and not to %q", got, address)
	}
}

// A label that somebody else has applied is the group's all the same, until the pod
// is no member any more.
func TestRoleLabelIsTheGroups(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	label := v1.RoleLabel("ledger")
	foreign := coreapply.Pod("ledger-0", s.namespace).WithLabels(map[string]string{label: v1.RoleCoordinator})
	if err := s.client.Apply(t.Context(), foreign, client.FieldOwner("somebody"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	s.awaitRole("ledger-0", "ledger", v1.RoleFollower)
	if err := s.client.Apply(t.Context(), foreign, client.FieldOwner("somebody")); !apierrors.IsConflict(err) {
		t.Errorf("who applies it again should be told whose it is, not: %v", err)
	}
	s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Members = group.Spec.Members[1:] })
	s.awaitRole("ledger-0", "ledger", "")
}

// Agents know more of the group than its status, as after a restore of etcd. Nothing
// that is made from the status gets to them, until the group is made anew.
func TestStatusIsFromABackup(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	uid, before := string(s.group("ledger").UID), s.document("ledger")
	s.pod("ledger-3", "ledger").ChangeReport("ledger", func(r *control.Report) { r.UID, r.Version = uid, 7 })
	s.awaitCondition("ledger", v1.Ready, v1.ReasonStatusBehind)
	s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Members = group.Spec.Members[1:] })
	s.await("the edit has been seen", func() bool { return s.group("ledger").Status.ObservedGeneration == 2 })
	s.awaitQuiet(a)
	if list, after := s.group("ledger").Status.MemberList, s.document("ledger"); list.Version != 1 || after.Revision != before.Revision {
		t.Errorf("it goes on from a list that has been overtaken: %+v, %+v", list, after)
	}
	if !s.in("ledger-3", "ledger") {
		t.Error("a member of the newer list was told to leave")
	}
	if err := s.client.Delete(t.Context(), s.group("ledger")); err != nil {
		t.Fatal(err)
	}
	s.await("its agents have left", func() bool { return !s.in("ledger-3", "ledger") && !s.in("ledger-0", "ledger") })
	s.declared("ledger", brief, "ledger-1", "ledger-2", "ledger-3")
	s.awaitAdopted("ledger", 1, "ledger-1", "ledger-2", "ledger-3")
}

// The role of a pod isn't given to another one that has its name by the time that
// it is written.
func TestRoleIsForOnePodOfTheName(t *testing.T) {
	s := newStage(t)
	var replaced sync.Once
	refused := make(chan int, 1)
	var other atomic.Bool
	a := s.operator(func(a *actor) {
		ours := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/pods/ledger-1") && other.Load() }
		a.before = func(r *http.Request) {
			if ours(r) {
				replaced.Do(func() {
					s.deletePod("ledger-1")
					s.barePod("ledger-1", func(*corev1.Pod) {})
				})
			}
		}
		a.answered = func(r *http.Request, answer *http.Response) {
			if ours(r) {
				select {
				case refused <- answer.StatusCode:
				default: // The first one counts.
				}
			}
		}
	})
	s.settled(a)
	other.Store(true)
	s.elect("ledger", "ledger-1", 8)
	if code := <-refused; code != http.StatusUnprocessableEntity {
		t.Errorf("the label of the pod that is gone was written at another one: %d", code)
	}
	s.awaitCoordinator("ledger", "ledger-1", 8)
	s.awaitRole("ledger-2", "ledger", v1.RoleFollower)
}

// A group is deleted in the foreground: the garbage collector removes first what the
// group owns, and then the group. Nothing is made anew meanwhile, and agents leave.
func TestGroupIsDeletedInTheForeground(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	if err := s.client.Delete(t.Context(), s.group("ledger"), client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	s.await("the agents have left", func() bool {
		return !s.in("ledger-0", "ledger") && !s.in("ledger-1", "ledger") && !s.in("ledger-2", "ledger")
	})
	s.awaitRole("ledger-2", "ledger", "")
	owned := []client.Object{
		&corev1.ConfigMap{ObjectMeta: s.named(control.ConfigMapName("ledger"))},
		&corev1.Service{ObjectMeta: s.named("ledger-leader")},
		&discoveryv1.EndpointSlice{ObjectMeta: s.named("ledger-leader-conclave")},
	}
	for _, object := range owned {
		if err := s.client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	s.pod("ledger-3", "ledger") // has the group be looked at
	s.awaitQuiet(a)
	for _, object := range owned {
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("%T has been made anew for a group that is going: %v", object, err)
		}
	}
	if s.group("ledger").DeletionTimestamp == nil {
		t.Error("the group should be about to go")
	}
}
