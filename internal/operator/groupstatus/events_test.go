package groupstatus

import (
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// TestStory: each step begins where the one before has left the status, and lists
// the events of that step alone.
func TestStory(t *testing.T) {
	s := newScene(3)
	for _, step := range []struct {
		sentence string
		at       time.Duration
		change   func()
		leads    string
		events   string
		// again is when Evaluate wants to be called again, 0 if never.
		again time.Duration
	}{
		{"the first coordinator", 0, func() {}, "c", "Normal CoordinatorElected: c leads in term 130896001", 0},
		{"nothing happens", 9 * time.Second, func() {}, "c", "", 0},
		{
			"c is killed, and b elected at once", 10 * time.Second, func() { s.kill("c"); s.term++; s.name("b", "b") },
			"b", "Normal CoordinatorElected: b leads in term 130896002, after c", 10*time.Second + unheard + 1400*time.Millisecond,
		},
		{"a hears of it", 10 * time.Second, func() { s.name("b", "a") }, "b", "", 0},
		{
			"c is back and takes over", 20 * time.Second, func() { s.hear("c"); s.mark("Normal", "c", "a", "b"); s.lead("c") },
			"c", "Normal CoordinatorElected: c leads in term 130896003, after b", 0,
		},
		{"c resigns", 30 * time.Second, func() { s.name("", s.names...) }, "nobody", "", 30*time.Second + 1400*time.Millisecond},
		{"nobody is in a hurry", 31 * time.Second, func() {}, "nobody", "", 30*time.Second + 1400*time.Millisecond},
		{"and a follows", 31 * time.Second, func() { s.lead("a") }, "a", "Normal CoordinatorElected: a leads in term 130896004, after c", 0},
		{"a is killed", 40 * time.Second, func() { s.kill("a"); s.name("", "b", "c") }, "nobody", "", 40*time.Second + 1400*time.Millisecond},
		{
			"nobody follows for longer than it should take", 40*time.Second + 1400*time.Millisecond, func() {},
			"nobody", "Warning CoordinatorLost: an election is under way; nobody has led since a", 0,
		},
		{"that is told once", 50 * time.Second, func() {}, "nobody", "", 0},
		{"another reason doesn't tell it again", 60 * time.Second, func() { s.kill("b"); s.lose("b") }, "nobody", "", 0},
		{"nobody is heard for a while", 62 * time.Second, func() { s.lose("c") }, "nobody", "", 0},
		{"and c is again: that was told", 64 * time.Second, func() { s.hear("c") }, "nobody", "", 0},
		{"a itself comes back", 70 * time.Second, func() {
			for _, name := range s.names {
				s.hear(name)
			}
			s.lead("a")
		}, "a", "Normal CoordinatorElected: a leads in term 130896005, as it did before", 0},
		{
			"another tenure of the same pod", 80 * time.Second, func() { s.lead("a") },
			"a", "Normal CoordinatorElected: a leads in term 130896006, as it did before", 0,
		},
		{"the operator can't hear anybody", 90 * time.Second, func() { s.lose(s.names...) }, "a", "", 0},
		{"the coordinator's pod is gone, for all that is known", 100 * time.Second, func() { s.gone("a") }, "nobody", "", 0},
		{"agents are heard again", 110 * time.Second, func() { s.hear("b"); s.hear("c") }, "nobody", "", 110*time.Second + 1400*time.Millisecond},
		{"and have elected", 120 * time.Second, func() { s.lead("c") }, "c", "Normal CoordinatorElected: c leads in term 130896007, after a", 0},
	} {
		s.at(step.at)
		step.change()
		r := s.make()
		expect(t, step.sentence+", leads", leader(&r.Status), step.leads)
		expect(t, step.sentence+", events", told(r.Events), step.events)
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
	s := newScene(3)
	s.Group.Spec.Timing.HeartbeatMillis = 1000
	s.make()
	s.name("", s.names...)
	if got := s.make().RequeueAt.Sub(noon); got != 5*time.Second {
		t.Errorf("four heartbeats are over after %v", got)
	}
	s.Group.Spec.Timing.PatienceMillis = new(int32(1500))
	if got := s.make().RequeueAt.Sub(noon); got != 2500*time.Millisecond {
		t.Errorf("the patience is over after %v", got)
	}
}

// TestDivision: a network of five is divided in Available mode, and heals.
//
//	a b | c d e       e leads all; then b leads the left side
func TestDivision(t *testing.T) {
	s := newScene(5)
	s.Group.Spec.Safety.Mode = v1.Available
	s.make()
	s.at(10 * time.Second)
	for _, left := range []string{"a", "b"} {
		for _, right := range []string{"c", "d", "e"} {
			s.mark("Crashed", right, left)
			s.mark("Crashed", left, right)
		}
	}
	s.term++
	s.name("b", "a", "b")
	r := s.make()
	expect(t, "the newest leads", leader(&r.Status), "b")
	expect(t, "at once", told(r.Events), "Normal CoordinatorElected: b leads in term 130896002, after e")
	expect(t, "at once", shown(&r.Status, v1.Agreed), "True Agreed: all agents say the same")
	expect(t, "at once", table(&r.Status), "e Unknown (Disputed), d Unknown (Disputed), c Unknown (Disputed), b Coordinator, a Normal")
	s.Now = r.RequeueAt
	r = s.make()
	const both = "a and b say that b leads in term 130896002; c, d and e say that e leads in term 130896001"
	expect(t, "after a while", shown(&r.Status, v1.Agreed), "False CoordinatorsDiffer: "+both)
	expect(t, "after a while", shown(&r.Status, v1.Ready), "False Disagreement: "+both)
	expect(t, "after a while", told(r.Events), "Warning Disagreement: "+both)
	expect(t, "then", told(s.make().Events), "")
	s.lead("e")
	for _, one := range s.names {
		for _, other := range s.names {
			s.mark("Normal", one, other)
		}
	}
	s.name("e", s.names...)
	r = s.make()
	expect(t, "healed", shown(&r.Status, v1.Ready), "True Healthy: all is well")
	expect(t, "healed", table(&r.Status), "e Coordinator, d Normal, c Normal, b Normal, a Normal")
	expect(t, "healed", told(r.Events), "Normal CoordinatorElected: e leads in term 130896003, after b")
}

// TestStoppedCoordinator: it holds its stream, doesn't notice that its tenure is
// over, and the others have elected.
func TestStoppedCoordinator(t *testing.T) {
	s := newScene(5)
	s.make()
	s.at(10 * time.Second)
	s.term++
	for _, name := range []string{"a", "b", "c", "d"} {
		s.mark("Crashed", "e", name)
		s.name("d", name)
	}
	r := s.make()
	expect(t, "leads", leader(&r.Status), "d")
	expect(t, "table", table(&r.Status), "e Unknown (Disputed), d Coordinator, c Normal, b Normal, a Normal")
	s.Now = r.RequeueAt
	r = s.make()
	expect(t, "agreed", shown(&r.Status, v1.Agreed), "False CoordinatorsDiffer: a, b, c and 1 more say that d leads in term 130896002; "+
		"e says that e leads in term 130896001")
	s.lose("e")
	r = s.make()
	expect(t, "table", table(&r.Status), "e Crashed (Unreachable), d Coordinator, c Normal, b Normal, a Normal")
	expect(t, "agreed", shown(&r.Status, v1.Agreed), "True Agreed: all agents say the same")
}

func TestListsThatDifferAreTold(t *testing.T) {
	s := newScene(3)
	s.make()
	s.said("a").Digest = "other"
	expect(t, "events", told(s.make().Events), "Warning Disagreement: agents don't listen to each other: b and c go by one list of version 1; "+
		"a goes by one list of version 1; delete the pods on the smaller side")
	expect(t, "then", told(s.make().Events), "")
	s.said("a").Digest, s.said("a").Generation = "d", 0
	expect(t, "settings", told(s.make().Events), "")
}

// TestWhoIsCutOffDisagreesWithNobody: c and its connection with the operator are
// cut off, which shows by its silence only; what it said last is of an older term.
func TestWhoIsCutOffDisagreesWithNobody(t *testing.T) {
	s := newScene(3)
	s.lead("c")
	s.make()
	s.term++
	s.name("b", "a", "b")
	s.make()
	s.at(10 * time.Second)
	r := s.make()
	expect(t, "agreed", shown(&r.Status, v1.Agreed), "True Agreed: all agents say the same")
	s.at(20 * time.Second)
	r = s.make()
	expect(t, "agreed, if c still breathes", shown(&r.Status, v1.Agreed),
		"False CoordinatorsDiffer: a and b say that b leads in term 130896003; c says that c leads in term 130896002")
}
