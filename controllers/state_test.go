package controllers

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Agents that have a revision of an operator whose clock was ahead accept only newer
// documents of the next group of the same name.
func TestRevisionIsRetainedAfterItsGroupIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var states groupStates
		ledger := types.NamespacedName{Namespace: "bank", Name: "ledger"}
		ahead := time.Now().Add(20 * time.Second).UnixMilli()
		s := &snapshot{now: time.Now(), state: states.get(ledger, "first"), group: &v1.ElectionGroup{}}
		s.group.Status.Document = &v1.PublishedDocument{Revision: ahead}
		s.published()
		if next := states.get(ledger, "second"); next.revision != ahead {
			t.Errorf("the group was replaced: got revision %d, want %d", next.revision, ahead)
		}
		states.forget(ledger)
		states.forget(ledger) // Each agent that leaves triggers another reconcile.
		if next := states.get(ledger, "third"); next.revision != ahead {
			t.Errorf("the group was deleted: got revision %d, want %d", next.revision, ahead)
		}
		states.forget(ledger)
		time.Sleep(21 * time.Second)
		states.forget(types.NamespacedName{Namespace: "bank", Name: "audit"})
		if len(states.groups) > 0 || len(states.deleted) > 0 {
			t.Errorf("got %v and %v, want only revisions that are ahead of the clock", states.groups, states.deleted)
		}
	})
}
