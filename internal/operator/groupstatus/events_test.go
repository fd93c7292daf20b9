package groupstatus

import (
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// TestStory: each step begins where the one before has left the status, and lists
// the events of that step alone.
func TestStory(t *testing.T) {
	s := newHarness(3)
	for _, step := range []struct {
		sentence string
		at       time.Duration
		change   func()
		leads    string
		events   string
		// again is when Evaluate wants to be called again, 0 if never.
		again time.Duration
	}{
		{"the first coordinator", 0, func() {}, "c", "Normal CoordinatorElected: c became coordinator in term 130896001", 0},
		{"nothing happens", 9 * time.Second, func() {}, "c", "", 0},
		{
			"c is killed, and b elected at once", 10 * time.Second, func() { s.crash("c"); s.term++; s.reportCoordinator("b", "b") },
			"b", "Normal CoordinatorElected: b became coordinator in term 130896002, after c", 10*time.Second + disconnectDetection + 1400*time.Millisecond,
		},
		{"a hears of it", 10 * time.Second, func() { s.reportCoordinator("b", "a") }, "b", "", 0},
		{
			"c is back and takes over", 20 * time.Second, func() { s.connect("c"); s.reportStatus("Normal", "c", "a", "b"); s.elect("c") },
			"c", "Normal CoordinatorElected: c became coordinator in term 130896003, after b", 0,
		},
		{"c resigns", 30 * time.Second, func() { s.reportCoordinator("", s.names...) }, "nobody", "", 30*time.Second + 1400*time.Millisecond},
		{"nobody is in a hurry", 31 * time.Second, func() {}, "nobody", "", 30*time.Second + 1400*time.Millisecond},
		{"and a follows", 31 * time.Second, func() { s.elect("a") }, "a", "Normal CoordinatorElected: a became coordinator in term 130896004, after c", 0},
		{"a is killed", 40 * time.Second, func() { s.crash("a"); s.reportCoordinator("", "b", "c") }, "nobody", "", 40*time.Second + 1400*time.Millisecond},
		{
			"nobody follows for longer than it should take", 40*time.Second + 1400*time.Millisecond, func() {},
			"nobody", "Warning CoordinatorLost: An election is in progress; there has been no coordinator since a", 0,
		},
		{"that is told once", 50 * time.Second, func() {}, "nobody", "", 0},
		{"another reason doesn't tell it again", 60 * time.Second, func() { s.crash("b"); s.disconnect("b") }, "nobody", "", 0},
		{"nobody is heard for a while", 62 * time.Second, func() { s.disconnect("c") }, "nobody", "", 0},
		{"and c is again: that was told", 64 * time.Second, func() { s.connect("c") }, "nobody", "", 0},
		{"a itself comes back", 70 * time.Second, func() {
			for _, name := range s.names {
				s.connect(name)
			}
			s.elect("a")
		}, "a", "Normal CoordinatorElected: a became coordinator again in term 130896005", 0},
		{
			"another tenure of the same pod", 80 * time.Second, func() { s.elect("a") },
			"a", "Normal CoordinatorElected: a became coordinator again in term 130896006", 0,
		},
		{"the operator can't hear anybody", 90 * time.Second, func() { s.disconnect(s.names...) }, "a", "", 0},
		{"the coordinator's pod is gone, for all that is known", 100 * time.Second, func() { s.deletePod("a") }, "nobody", "", 0},
		{"agents are heard again", 110 * time.Second, func() { s.connect("b"); s.connect("c") }, "nobody", "", 110*time.Second + 1400*time.Millisecond},
		{"and have elected", 120 * time.Second, func() { s.elect("c") }, "c", "Normal CoordinatorElected: c became coordinator in term 130896007, after a", 0},
	} {
		s.setTime(step.at)
		step.change()
		r := s.evaluate()
		expect(t, step.sentence+", leads", coordinatorName(&r.Status), step.leads)
		expect(t, step.sentence+", events", formatEvents(r.Events), step.events)
		want := time.Time{}
		if step.again > 0 {
			want = noon.Add(step.again)
		}
		if !r.RequeueAt.Equal(want) {
			t.Errorf("%s: wants to look again at %v, not at %v", step.sentence, r.RequeueAt, want)
		}
	}
}

func TestPatienceIsTheGroups(t *testing.T) {
	s := newHarness(3)
	s.Group.Spec.Timing.HeartbeatMillis = 1000
	s.evaluate()
	s.reportCoordinator("", s.names...)
	if got := s.evaluate().RequeueAt.Sub(noon); got != 5*time.Second {
		t.Errorf("four heartbeats are over after %v", got)
	}
	s.Group.Spec.Timing.PatienceMillis = new(int32(1500))
	if got := s.evaluate().RequeueAt.Sub(noon); got != 2500*time.Millisecond {
		t.Errorf("the patience is over after %v", got)
	}
}

// TestDivision: a network of five is divided in Available mode, and heals.
//
//	a b | c d e       e leads all; then b leads the left side
func TestDivision(t *testing.T) {
	s := newHarness(5)
	s.Group.Spec.Safety.Mode = v1.Available
	s.evaluate()
	s.setTime(10 * time.Second)
	for _, left := range []string{"a", "b"} {
		for _, right := range []string{"c", "d", "e"} {
			s.reportStatus("Crashed", right, left)
			s.reportStatus("Crashed", left, right)
		}
	}
	s.term++
	s.reportCoordinator("b", "a", "b")
	r := s.evaluate()
	expect(t, "the newest leads", coordinatorName(&r.Status), "b")
	expect(t, "at once", formatEvents(r.Events), "Normal CoordinatorElected: b became coordinator in term 130896002, after e")
	expect(t, "at once", formatCondition(&r.Status, v1.Agreed), "True Agreed: All agents agree")
	expect(t, "at once", formatTable(&r.Status), "e Unknown (Disputed), d Unknown (Disputed), c Unknown (Disputed), b Coordinator, a Normal")
	s.Now = r.RequeueAt
	r = s.evaluate()
	const both = "a and b report coordinator b in term 130896002; c, d and e report coordinator e in term 130896001"
	expect(t, "after a while", formatCondition(&r.Status, v1.Agreed), "False CoordinatorsDiffer: "+both)
	expect(t, "after a while", formatCondition(&r.Status, v1.Ready), "False Disagreement: "+both)
	expect(t, "after a while", formatEvents(r.Events), "Warning Disagreement: "+both)
	expect(t, "then", formatEvents(s.evaluate().Events), "")
	s.elect("e")
	for _, one := range s.names {
		for _, other := range s.names {
			s.reportStatus("Normal", one, other)
		}
	}
	s.reportCoordinator("e", s.names...)
	r = s.evaluate()
	expect(t, "healed", formatCondition(&r.Status, v1.Ready), "True Healthy: The group is healthy")
	expect(t, "healed", formatTable(&r.Status), "e Coordinator, d Normal, c Normal, b Normal, a Normal")
	expect(t, "healed", formatEvents(r.Events), "Normal CoordinatorElected: e became coordinator in term 130896003, after b")
}

// TestStoppedCoordinator: it holds its stream, doesn't notice that its tenure is
// over, and the others have elected.
func TestStoppedCoordinator(t *testing.T) {
	s := newHarness(5)
	s.evaluate()
	s.setTime(10 * time.Second)
	s.term++
	for _, name := range []string{"a", "b", "c", "d"} {
		s.reportStatus("Crashed", "e", name)
		s.reportCoordinator("d", name)
	}
	r := s.evaluate()
	expect(t, "leads", coordinatorName(&r.Status), "d")
	expect(t, "table", formatTable(&r.Status), "e Unknown (Disputed), d Coordinator, c Normal, b Normal, a Normal")
	s.Now = r.RequeueAt
	r = s.evaluate()
	expect(t, "agreed", formatCondition(&r.Status, v1.Agreed), "False CoordinatorsDiffer: a, b, c and 1 more report coordinator d in term 130896002; "+
		"e reports coordinator e in term 130896001")
	s.disconnect("e")
	r = s.evaluate()
	expect(t, "table", formatTable(&r.Status), "e Crashed (Unreachable), d Coordinator, c Normal, b Normal, a Normal")
	expect(t, "agreed", formatCondition(&r.Status, v1.Agreed), "True Agreed: All agents agree")
}

func TestListsThatDifferAreTold(t *testing.T) {
	s := newHarness(3)
	s.evaluate()
	s.report("a").Digest = "other"
	expect(t, "events", formatEvents(s.evaluate().Events), "Warning Disagreement: Agents ignore each other because their member lists differ: b and c have one list of version 1; "+
		"a has one list of version 1; delete the pods of the smaller side")
	expect(t, "then", formatEvents(s.evaluate().Events), "")
	s.report("a").Digest, s.report("a").Generation = "d", 0
	expect(t, "settings", formatEvents(s.evaluate().Events), "")
}

// TestWhoIsCutOffDisagreesWithNobody: c and its connection with the operator are
// cut off, which shows by its silence only; what it said last is of an older term.
func TestWhoIsCutOffDisagreesWithNobody(t *testing.T) {
	s := newHarness(3)
	s.elect("c")
	s.evaluate()
	s.term++
	s.reportCoordinator("b", "a", "b")
	s.evaluate()
	s.setTime(10 * time.Second)
	r := s.evaluate()
	expect(t, "agreed", formatCondition(&r.Status, v1.Agreed), "True Agreed: All agents agree")
	s.setTime(20 * time.Second)
	r = s.evaluate()
	expect(t, "agreed, if c still breathes", formatCondition(&r.Status, v1.Agreed),
		"False CoordinatorsDiffer: a and b report coordinator b in term 130896003; c reports coordinator c in term 130896002")
}
