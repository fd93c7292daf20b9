package groupstatus

import (
	"fmt"
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
)

// TestHistory is the history of one group: each step begins with the status of the one
// before, and lists only its own events.
func TestHistory(t *testing.T) {
	cases := golden.Open(t, "testdata/events.txt")
	s := newHarness(3)
	for i, step := range []struct {
		name   string
		at     time.Duration
		change func()
	}{
		{"the first coordinator", 0, func() {}},
		{"no change", 9 * time.Second, func() {}},
		{
			"c crashes, and b reports that it was elected",
			10 * time.Second,
			func() { s.crash("c"); s.elect("b", "b") },
		},
		{"a confirms it", 10 * time.Second, func() { s.reportCoordinator("b", "a") }},
		{
			"c recovers and takes over",
			20 * time.Second,
			func() { s.connect("c"); s.reportStatus("Normal", "c", "a", "b"); s.elect("c") },
		},
		{"c resigns", 30 * time.Second, func() { s.reportCoordinator("", s.names...) }},
		{"an election may take some time", 31 * time.Second, func() {}},
		{"a is elected", 31 * time.Second, func() { s.elect("a") }},
		{"a crashes", 40 * time.Second, func() { s.crash("a"); s.reportCoordinator("", "b", "c") }},
		{
			"no election for longer than the suspicion timeout",
			40*time.Second + 1400*time.Millisecond,
			func() {},
		},
		{"the loss is reported once", 50 * time.Second, func() {}},
		{
			"another reason does not report it again",
			60 * time.Second,
			func() { s.crash("b"); s.disconnect("b") },
		},
		{"no agent is connected for some time", 62 * time.Second, func() { s.disconnect("c") }},
		{"c is connected again: the loss has been reported", 64 * time.Second, func() { s.connect("c") }},
		{"a recovers", 70 * time.Second, func() {
			for _, name := range s.names {
				s.connect(name)
			}
			s.elect("a")
		}},
		{"another tenure of the same pod", 80 * time.Second, func() { s.elect("a") }},
		{
			"the operator is disconnected from all agents",
			90 * time.Second,
			func() { s.disconnect(s.names...) },
		},
		{"the coordinator's pod is deleted", 100 * time.Second, func() { s.deletePods("a") }},
		{"agents are connected again", 110 * time.Second, func() { s.connect("b"); s.connect("c") }},
		{"c is elected", 120 * time.Second, func() { s.elect("c") }},
	} {
		s.setTime(step.at)
		step.change()
		r := s.evaluate()
		got := coordinatorName(&r.Status) + "\n" + formatEvents(r.Events)
		if !r.RequeueAt.IsZero() {
			got += fmt.Sprint("\nnext evaluation after ", r.RequeueAt.Sub(noon))
		}
		cases.Compare(t, fmt.Sprintf("%02d %s", i+1, step.name), got)
	}
}

func TestSuspicionTimeoutOfGroup(t *testing.T) {
	s := newHarness(3)
	s.Group.Spec.Timing.HeartbeatMillis = 1000
	s.evaluate()
	s.reportCoordinator("", s.names...)
	expect.Equalf(t, s.evaluate().RequeueAt.Sub(noon), 5*time.Second, "by default: requeue after (want 5s)")
	s.Group.Spec.Timing.SuspicionTimeoutMillis = new(int32(1500))
	expect.Equalf(t, s.evaluate().RequeueAt.Sub(noon), 2500*time.Millisecond,
		"time until the next reconcile, with suspicionTimeoutMillis")
}

// TestPartition partitions the network of five members in Available mode, and heals it.
//
//	a b | c d e       e is the coordinator of all, and then b of the left side
func TestPartition(t *testing.T) {
	s := newHarness(5)
	s.setAvailable()
	s.evaluate()
	s.setTime(10 * time.Second)
	for _, left := range []string{"a", "b"} {
		for _, right := range []string{"c", "d", "e"} {
			s.reportStatus("Crashed", right, left)
			s.reportStatus("Crashed", left, right)
		}
	}
	s.elect("b", "a", "b")
	r := s.evaluate()
	expect.Equalf(t, coordinatorName(&r.Status), "b", "the newest coordinator")
	expect.Equalf(t, formatEvents(r.Events),
		"Normal CoordinatorElected: b became coordinator in term 65538, after e", "immediately")
	expect.Equalf(t, formatCondition(&r.Status, v1.ConditionAvailable),
		"True Elected: The agents agree on the coordinator", "immediately")
	expect.Equalf(t, formatTable(&r.Status),
		"e Unknown (Disputed), d Unknown (Disputed), c Unknown (Disputed), b Coordinator, a Normal", "immediately")
	s.Now = r.RequeueAt
	r = s.evaluate()
	const both = "a and b report coordinator b in term 65538; c, d and e report coordinator e in term 65537"
	expect.Equalf(t, formatCondition(&r.Status, v1.ConditionAvailable), "False CoordinatorsDiffer: "+both,
		"after the suspicion timeout")
	expect.Equalf(t, formatCondition(&r.Status, v1.ConditionReady), "False CoordinatorsDiffer: "+both,
		"after the suspicion timeout")
	expect.Equalf(t, formatEvents(r.Events), "Warning Disagreement: "+both, "after the suspicion timeout")
	expect.Equalf(t, formatEvents(s.evaluate().Events), "", "then")
	s.elect("e")
	for _, one := range s.names {
		for _, other := range s.names {
			s.reportStatus("Normal", one, other)
		}
	}
	s.reportCoordinator("e", s.names...)
	r = s.evaluate()
	expect.Equalf(t, formatCondition(&r.Status, v1.ConditionReady), "True Healthy: The group is healthy", "healed")
	expect.Equalf(t, formatTable(&r.Status), "e Coordinator, d Normal, c Normal, b Normal, a Normal", "healed")
	expect.Equalf(t, formatEvents(r.Events),
		"Normal CoordinatorElected: e became coordinator in term 65539, after b", "healed")
}

// TestPausedCoordinator pauses a coordinator: its stream remains open, it does not detect
// that its tenure has ended, and the others elect another one.
func TestPausedCoordinator(t *testing.T) {
	s := newHarness(5)
	s.evaluate()
	s.setTime(10 * time.Second)
	s.term++
	for _, name := range []string{"a", "b", "c", "d"} {
		s.reportStatus("Crashed", "e", name)
		s.reportCoordinator("d", name)
	}
	r := s.evaluate()
	expect.Equalf(t, coordinatorName(&r.Status), "d", "coordinator")
	expect.Equalf(t, formatTable(&r.Status), "e Unknown (Disputed), d Coordinator, c Normal, b Normal, a Normal", "table")
	s.Now = r.RequeueAt
	r = s.evaluate()
	expect.Equalf(t, formatCondition(&r.Status, v1.ConditionReady),
		"True CoordinatorsDiffer: a, b, c and 1 more report coordinator d in term 65538; "+
			"e reports coordinator e in term 65537", "ready: a majority agrees")
	s.disconnect("e")
	r = s.evaluate()
	expect.Equalf(t, formatTable(&r.Status),
		"e Crashed (Unreachable), d Coordinator, c Normal, b Normal, a Normal", "table")
	expect.Equalf(t, formatCondition(&r.Status, v1.ConditionAvailable),
		"True Elected: The agents agree on the coordinator", "available")
}

func TestListsDifferEvent(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.report("a").Digest = "other"
	expect.Equalf(t, formatEvents(s.evaluate().Events), "Warning Disagreement: Agents ignore each other because their "+
		"member lists differ: b and c have one list of version 1; "+
		"a has one list of version 1; delete the pods of the smaller side", "events")
	expect.Equalf(t, formatEvents(s.evaluate().Events), "", "then")
	s.report("a").Digest, s.report("a").Generation = "d", 0
	expect.Equalf(t, formatEvents(s.evaluate().Events), "", "settings")
}
