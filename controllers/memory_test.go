package controllers

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// A revision that agents have of another operator, whose clock is ahead, outlives its
// group: they take nothing older of the next one of the name.
func TestRevisionOutlivesItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memories
		ledger := types.NamespacedName{Namespace: "bank", Name: "ledger"}
		ahead := time.Now().Add(20 * time.Second).UnixMilli()
		s := &scene{now: time.Now(), memory: m.recall(ledger, "first"), group: &v1.ElectionGroup{}, document: &control.Document{Revision: ahead}}
		s.published()
		if again := m.recall(ledger, "second"); again.revision != ahead {
			t.Errorf("made anew, it begins after revision %d and not %d", again.revision, ahead)
		}
		m.forget(ledger)
		m.forget(ledger) // Its agents leave one after the other.
		if again := m.recall(ledger, "third"); again.revision != ahead {
			t.Errorf("after it was gone, it begins after revision %d and not %d", again.revision, ahead)
		}
		m.forget(ledger)
		time.Sleep(21 * time.Second)
		m.forget(types.NamespacedName{Namespace: "bank", Name: "audit"})
		if len(m.of) > 0 || len(m.over) > 0 {
			t.Errorf("what our clock has passed is kept: %v, %v", m.of, m.over)
		}
	})
}
