package controllers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// newMajoritySnapshot returns a snapshot of a group of three when the operator has just started.
func newMajoritySnapshot() *snapshot {
	s := &snapshot{
		now: time.Now(), state: &groupState{}, connections: map[string]agents.Connection{},
		group: &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}},
	}
	s.key.Namespace, s.key.Name = "bank", "ledger"
	s.group.Status.Protocol.MemberList = &v1.MemberList{
		Version: 1, State: v1.ListSettled, Members: []v1.Member{{Pod: "a", Priority: 1}, {Pod: "b", Priority: 2}, {Pod: "c", Priority: 3}},
	}
	return s
}

// membership.Facts.MajorityLost: an operator that has just started isn't connected to any
// agent. That must not look as if the members had stopped. Each time that a majority is
// connected, the wait begins again.
func TestMajorityIsLostAfterGrace(t *testing.T) {
	s := newMajoritySnapshot()
	connect := func(pods ...string) {
		clear(s.connections)
		for _, pod := range pods {
			s.connections[pod] = agents.Connection{Connected: true, Groups: []string{"ledger"}}
		}
	}
	for _, step := range []struct {
		name    string
		connect []string
		after   time.Duration
		lost    bool
	}{
		{"at the start", nil, 0, false},
		{"a minority is connected", []string{"a"}, membership.MajorityGrace - 1, false},
		{"after the grace", []string{"a"}, 1, true},
		{"a majority is connected", []string{"a", "b"}, 1, false},
		{"for a long time", []string{"b", "c"}, time.Hour, false},
		{"a short interruption", nil, time.Hour, false},
		{"another majority", []string{"a", "c"}, membership.MajorityGrace - 1, false},
		{"another interruption", []string{"c"}, 1, false},
		{"nearly the grace", []string{"c"}, membership.MajorityGrace - 1, false},
		{"the grace", []string{"b"}, 1, true},
	} {
		s.now, s.deadline = s.now.Add(step.after), deadline{}
		connect(step.connect...)
		expect.Equalf(t, s.membershipFacts().MajorityLost, step.lost, "%s", step.name)
		if waits := len(step.connect) < 2 && !step.lost; s.deadline.at.IsZero() == waits {
			t.Errorf("%s: got deadline %v, want one exactly while the grace lasts", step.name, s.deadline.at)
		}
	}
	s.connections["a"] = agents.Connection{Connected: true, Groups: []string{"other"}}
	s.connections["b"] = agents.Connection{Connected: true, Groups: []string{"ledger"}}
	if !s.majorityLost() {
		t.Error("got an agent of another group counted, want only those that accept the group")
	}
}

// A standby reconciles rarely. So it doesn't count the time between two reconciles, in which
// a majority may have been connected.
func TestStandbyDoesNotCountTimeWithoutMajority(t *testing.T) {
	s := newMajoritySnapshot()
	r := &Reconciler{}
	for range 2 {
		must.Succeed(t, r.reconcileStandby(t.Context(), s))
		s.now = s.now.Add(time.Hour)
	}
	if s.majorityLost() {
		t.Error("got the majority lost in the first reconcile as the leader, want it after the grace")
	}
}
