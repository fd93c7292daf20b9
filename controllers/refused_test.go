package controllers_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/control"
)

// What agents mount can't be written, and stays so. They elect all the same, and
// all that follows from that is shown; nobody is told what isn't published.
func TestConfigMapCannotBeWritten(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	published := &corev1.ConfigMap{ObjectMeta: s.named(control.ConfigMapName("ledger"))}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(published), published); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(published.DeepCopy())
	published.Immutable = new(true)
	if err := s.client.Patch(t.Context(), published, patch); err != nil {
		t.Fatal(err)
	}
	before := s.document("ledger").Revision
	s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Members = group.Spec.Members[1:] })
	ready := s.awaitCondition("ledger", v1.Ready, v1.ReasonNotWritten)
	if want := "the operator can't write ConfigMap conclave-ledger: "; !strings.Contains(ready.Message, want) || !strings.Contains(ready.Message, "immutable") {
		t.Errorf("Ready should say %q, and why, not %q", want, ready.Message)
	}
	s.elect("ledger", "ledger-1", 8)
	s.awaitCoordinator("ledger", "ledger-1", 8)
	s.awaitRole("ledger-1", "ledger", v1.RoleCoordinator)
	s.awaitRole("ledger-2", "ledger", v1.RoleFollower)
	s.await("the Service follows", func() bool { return s.endpoint("ledger-leader") == s.ip("ledger-1") })
	if report, _ := s.agents["ledger-1"].Report("ledger"); report.Revision != before {
		t.Errorf("an agent goes by revision %d, and what is published is %d", report.Revision, before)
	}
	if ready := s.awaitCondition("ledger", v1.Ready, v1.ReasonNotWritten); !strings.Contains(ready.Message, "immutable") {
		t.Errorf("it still can't be written, and Ready says %q", ready.Message)
	}

	if err := s.client.Delete(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	s.awaitList("ledger", 2, "ledger-1", "ledger-2")
	s.awaitCondition("ledger", v1.Ready, v1.ReasonNoFailover)
	s.await("who is no member has left", func() bool { return !s.in("ledger-0", "ledger") })
}
