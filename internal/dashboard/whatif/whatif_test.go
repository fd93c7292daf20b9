package whatif_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/dashboard/whatif"
)

func group(algorithm v1.Algorithm, mode v1.SafetyMode, priorities ...int32) *v1.ElectionGroup {
	g := &v1.ElectionGroup{}
	g.Spec.Algorithm, g.Spec.Safety.Mode = algorithm, mode
	g.Spec.Safety.LeaseMillis, g.Spec.Timing.HeartbeatMillis = 500, 100
	g.Status.Protocol.MemberList = &v1.MemberList{Version: 1, State: v1.ListSettled}
	for i, p := range priorities {
		g.Status.Protocol.MemberList.Members = append(g.Status.Protocol.MemberList.Members, v1.Member{Pod: fmt.Sprint("ledger-", i), Priority: p})
	}
	return g
}

// TestAsk: who leads next, and what that costs.
func TestAsk(t *testing.T) {
	five := []int32{10, 20, 30, 40, 50}
	for name, c := range map[string]struct {
		group       *v1.ElectionGroup
		down        string
		coordinator string
		text, cost  string
	}{
		"the coordinator crashes": {group("StatusTable", v1.Majority, five...), "ledger-4", "ledger-3", "ledger-3 becomes the coordinator: ", ""},
		"by the bully":            {group("Bully", v1.Majority, five...), "ledger-4", "ledger-3", "ledger-3 becomes the coordinator: ", "3 messages of the election: 3 COORDINATOR"},
		"the next one, too":       {group("Bully", v1.Majority, five...), "ledger-4 ledger-3", "ledger-2", "ledger-2 becomes the coordinator: ", "COORDINATOR"},
		"on a ring":               {group("RingSkip", v1.Majority, five...), "ledger-4", "ledger-3", "ledger-3 becomes the coordinator: ", ""},
		"in another order":        {group("RingChampion", v1.Available, 50, 10, 40, 20, 30), "ledger-0", "ledger-2", "ledger-2 becomes the coordinator: ", ""},
		"in Strict mode":          {group("StatusTable", v1.Strict, five...), "ledger-4", "ledger-3", "the lease of the former coordinator ends first: up to 500 ms more", ""},
		"a follower crashes":      {group("Bully", v1.Majority, five...), "ledger-0", "ledger-4", "ledger-4 remains the coordinator: there is no election.", ""},
		"no majority":             {group("Bully", v1.Majority, five...), "ledger-4 ledger-3 ledger-0", "", "in Majority mode a coordinator needs a majority, 3 of 5 members, and only 2 are up", ""},
		"no majority needed":      {group("Bully", v1.Available, five...), "ledger-4 ledger-3 ledger-0", "ledger-2", "ledger-2 becomes the coordinator", ""},
		"only voters are left":    {group("Bully", v1.Majority, 0, 0, 30), "ledger-2", "", "those that are up have priority 0", ""},
		"nobody is left":          {group("Bully", v1.Available, 10, 20), "ledger-0 ledger-1", "", "All members are down", ""},
		"a voter takes part":      {group("StatusTable", v1.Majority, 0, 20, 30), "ledger-2", "ledger-1", "ledger-1 becomes the coordinator", ""},
	} {
		got, err := whatif.Ask(c.group, whatif.Question{Down: strings.Fields(c.down), Latency: time.Millisecond})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Coordinator != c.coordinator || !strings.Contains(got.Text, c.text) || !strings.Contains(got.Cost, c.cost) {
			t.Errorf("%s: got coordinator %q, %q, %q; want %q, %q, %q", name, got.Coordinator, got.Text, got.Cost, c.coordinator, c.text, c.cost)
		}
		if elected := strings.Contains(got.Text, "becomes"); elected != (got.Millis > 0) || elected != (len(got.Steps) > 0) {
			t.Errorf("%s: got %g ms and %d steps", name, got.Millis, len(got.Steps))
		}
		for _, step := range got.Steps {
			from, prefix, lost := got.Members[step.From], " -> ", got.Members[step.To].Down
			if step.Note {
				prefix = " "
			}
			if from.Down || lost != step.Lost || !strings.HasPrefix(step.Text, from.Pod+prefix) || step.Note != (step.From == step.To) {
				t.Errorf("%s: got step %+v", name, step)
			}
		}
	}
}

// TestNodeFails: it is noticed after the suspicion timeout, and in Majority mode when the lease has ended, too.
func TestNodeFails(t *testing.T) {
	for mode, want := range map[v1.SafetyMode]string{v1.Majority: "up to 500 ms later", v1.Available: "up to 400 ms later"} {
		got, err := whatif.Ask(group("Bully", mode, 10, 20, 30), whatif.Question{Down: []string{"ledger-2"}, Silent: true, Latency: time.Millisecond})
		if err != nil || !strings.Contains(got.Text, want) {
			t.Errorf("%s: got %+v, %v, want %s", mode, got, err, want)
		}
	}
}

// TestSlowerMessages: the time of a message determines the duration.
func TestSlowerMessages(t *testing.T) {
	g := group("Bully", v1.Majority, 10, 20, 30, 40, 50)
	var before float64
	for _, latency := range []time.Duration{200 * time.Microsecond, 2 * time.Millisecond, 20 * time.Millisecond} {
		got, err := whatif.Ask(g, whatif.Question{Down: []string{"ledger-4"}, Latency: latency})
		if err != nil || got.Millis < 5*before || got.Millis == 0 {
			t.Fatalf("%s: got %+v, %v after %g ms", latency, got, err, before)
		}
		before = got.Millis
	}
}

func TestBadQuestions(t *testing.T) {
	five := group("Bully", v1.Majority, 10, 20, 30, 40, 50)
	for want, c := range map[string]struct {
		g *v1.ElectionGroup
		q whatif.Question
	}{
		`"nobody" is no member of the group`:                                               {five, whatif.Question{Down: []string{"nobody"}, Latency: time.Millisecond}},
		"the time of a message must be above 0 and at most 1s, got 0s":                     {five, whatif.Question{}},
		"the time of a message must be above 0 and at most 1s, got 1m0s":                   {five, whatif.Question{Latency: time.Minute}},
		"the lease of 500ms is too short for messages that take 100ms: choose faster ones": {five, whatif.Question{Latency: 100 * time.Millisecond}},
		"the group has no member list yet":                                                 {&v1.ElectionGroup{}, whatif.Question{Latency: time.Millisecond}},
		"the group has 51 members; groups of up to 50 are simulated here, and larger ones by kubectl conclave simulate": {
			group("Bully", v1.Majority, make([]int32, 51)...), whatif.Question{Latency: time.Millisecond},
		},
	} {
		if _, err := whatif.Ask(c.g, c.q); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

// BenchmarkLargest measures the most expensive question of each election.
func BenchmarkLargest(b *testing.B) {
	var priorities []int32
	for i := range int32(whatif.MembersMax) {
		priorities = append(priorities, i+1)
	}
	for _, algorithm := range []v1.Algorithm{"Bully", "StatusTable", "RingAllIDs", "RingChampion", "RingActiveList", "RingSkip"} {
		b.Run(string(algorithm), func(b *testing.B) {
			for b.Loop() {
				q := whatif.Question{Latency: time.Millisecond}
				for i := range 24 {
					q.Down = append(q.Down, fmt.Sprint("ledger-", 49-i))
				}
				if _, err := whatif.Ask(group(algorithm, v1.Majority, priorities...), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
