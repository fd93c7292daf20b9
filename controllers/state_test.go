package controllers

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Agents that have a revision of an operator whose clock was ahead accept only newer
// documents of the next group of the same name.
func TestRevisionIsRetainedAfterItsGroupIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var states groupStates
		ledger := types.NamespacedName{Namespace: "bank", Name: "ledger"}
		ahead := time.Now().Add(20 * time.Second).UnixMilli()
		s := &snapshot{now: time.Now(), state: states.get(ledger, "first"), group: &v1.ElectionGroup{}}
		s.group.Status.Protocol.Document = &v1.PublishedDocument{Revision: ahead}
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

// A published revision is higher than what agents have, so that they accept it, and not ahead of the clocks of others, which would
// refuse it. An agent that reports ever higher revisions doesn't matter once a majority uses the published document.
func TestReportedRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		next, last := now.UnixMilli()+1, control.MaxRevision(now.Add(-time.Hour))
		for name, c := range map[string]struct {
			published int64
			reported  [3]int64
			want      int64
		}{
			"the status lost the document":       {0, [3]int64{next, 5, 0}, next},
			"the highest that others accept":     {0, [3]int64{last, 5, 0}, last},
			"ahead of the clocks of others":      {0, [3]int64{last + 1, 5, 0}, 5},
			"the end of time":                    {0, [3]int64{1<<63 - 1, 5, 0}, 5},
			"a majority uses the document":       {7, [3]int64{next, 7, 6}, 7},
			"a majority has later documents":     {7, [3]int64{8, 9, 6}, 9},
			"a published revision of the future": {control.MaxRevision(now) + 1, [3]int64{0, 0, 0}, 0},
		} {
			s := &snapshot{now: now, state: &groupState{}, group: &v1.ElectionGroup{}, reports: map[string]agents.AgentReport{}}
			s.group.UID, s.group.Status.Protocol.MemberList = "u", &v1.MemberList{}
			if c.published != 0 {
				s.group.Status.Protocol.Document = &v1.PublishedDocument{Revision: c.published}
			}
			for i, revision := range c.reported {
				pod := fmt.Sprint("ledger-", i)
				s.group.Status.Protocol.MemberList.Members = append(s.group.Status.Protocol.MemberList.Members, v1.Member{Pod: pod})
				s.reports[pod] = agents.AgentReport{Report: &control.Report{UID: "u", Revision: revision}}
			}
			if _, got := s.published(); got != c.want {
				t.Errorf("%s: got revision %d, want %d", name, got, c.want)
			}
		}
	})
}
