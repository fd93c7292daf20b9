package controllers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/control"
)

// plan.Facts.Missing: the wait begins anew with each version. A pod that has been
// away for long may come just before that, begin with the version before, and be
// seen by the operator only later.
func TestWaitForTheMissingBeginsAnewWithEachVersion(t *testing.T) {
	now := time.Now()
	s := &scene{
		now: now, memory: &memory{missing: map[string]time.Time{}},
		group: &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Name: "ledger"}},
	}
	publish := func(version uint32) {
		s.document = &control.Document{Revision: 1, Group: control.Group{Version: version}}
	}
	publish(1)
	one := []v1.Member{{Pod: "a", Priority: 1}, {Pod: "b", Priority: 2}, {Pod: "c", Priority: 3}}
	s.group.Status.MemberList = &v1.MemberList{Version: 1, State: v1.ListSettled, Members: one}
	if s.missing()["c"] {
		t.Error("nobody has waited yet")
	}
	s.now = now.Add(time.Hour)
	if !s.missing()["c"] {
		t.Error("it has been away for an hour")
	}
	s.group.Status.MemberList = &v1.MemberList{
		Version: 2, State: v1.ListAdopting, Members: one[:2], Previous: &v1.PreviousList{Version: 1, Members: one},
	}
	if s.missing()["c"] {
		t.Error("version 2 hasn't been published")
	}
	s.now = s.now.Add(time.Hour)
	publish(2)
	if s.missing()["c"] {
		t.Error("the wait must begin anew with version 2")
	}
	s.now = s.now.Add(time.Hour)
	if !s.missing()["c"] {
		t.Error("it has been away for an hour since")
	}
}
