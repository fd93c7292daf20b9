package transcript_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// firstTerm is the term in which a simulation begins.
const firstTerm = 1<<16 + 1

// epoch is the time of day when a simulation begins.
var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// simulated has the journals of simulated agents, as real ones record them.
type simulated struct {
	scenario sim.Scenario
	rings    []*journal.Ring // by ID
	outcome  sim.Outcome
}

func podName(id election.ID) string {
	if id == election.None {
		return ""
	}
	return fmt.Sprint("ledger-", id-1)
}

// simulate runs the election after the crash of the highest process.
func simulate(t *testing.T, algorithm string, processes int) *simulated {
	t.Helper()
	highest := election.ID(processes)
	s := &simulated{scenario: sim.Scenario{
		Algorithm: algorithm, Processes: processes, Safety: "Majority", Latency: sim.Millisecond,
		Crashed: []election.ID{highest}, Initiators: []election.ID{highest - 1},
	}}
	for range processes + 1 {
		s.rings = append(s.rings, new(journal.Ring))
	}
	for _, r := range s.rings[1:highest] { // They followed it before.
		before := []election.Event{{Kind: election.Recognized, Peer: highest, Term: firstTerm}}
		r.Record(&journal.Record{Input: election.Input{Kind: election.TimePassed}, Events: before})
		r.Record(&journal.Record{Before: election.Status{Coordinator: highest}}) // Its tenure ends.
	}
	s.scenario.Watch = func(step transcript.Step) {
		s.rings[step.Process].Record(&journal.Record{
			Input: step.Input, Send: step.Output.Send, Events: step.Output.Events,
		})
	}
	outcome, err := sim.Run(s.scenario)
	must.Succeed(t, err)
	s.outcome = outcome
	return s
}

// journals returns the journals of the survivors. ahead returns by how much a clock is wrong.
func (s *simulated) journals(ahead func(election.ID) time.Duration) []journal.Journal {
	var journals []journal.Journal
	for id, r := range s.rings {
		self := election.ID(id)
		if self == election.None || id == s.scenario.Processes {
			continue
		}
		journals = append(journals, journal.Journal{
			Group: "ledger", Agent: podName(self), Algorithm: s.scenario.Algorithm, Safety: "Majority", Members: s.members(),
			Steps: r.Steps(podName, func(at election.Tick) time.Time {
				return epoch.Add(time.Duration(at/sim.Microsecond)*time.Microsecond + ahead(self))
			}),
		})
	}
	return journals
}

func (s *simulated) members() []journal.Member {
	var members []journal.Member
	for id := range s.scenario.Processes {
		priority := uint32(10 * (id + 1)) //nolint:gosec // small
		members = append(members, journal.Member{Name: podName(election.ID(id + 1)), Priority: priority})
	}
	return members
}

// wrongClocks are ahead or behind by up to 10 s.
func wrongClocks(seed uint64) func(election.ID) time.Duration {
	return func(id election.ID) time.Duration {
		rng := rand.New(rand.NewPCG(seed, uint64(id)))
		return time.Duration(rng.Int64N(int64(20*time.Second))) - 10*time.Second
	}
}

// TestSequenceHasEachMessage: the diagram has the messages of the transcript in order, says when
// they arrived, and which were lost.
func TestSequenceHasEachMessage(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		e := transcript.Merge(simulate(t, algorithm, 5).journals(func(election.ID) time.Duration { return 0 }), 0)
		total := 0
		for _, n := range e.Messages {
			total += n
		}
		got := e.Sequence()
		messages, notes, last := 0, 0, 0.0
		for _, s := range got.Steps {
			expect.AtLeastf(t, s.Millis, last, "%s: time", algorithm)
			last = s.Millis
			from, to := got.Members[s.From], got.Members[s.To]
			if s.Note {
				if notes++; s.Kind == "" || !strings.HasPrefix(s.Text, from.Pod+" ") {
					t.Errorf("%s: got note %+v", algorithm, s)
				}
				continue
			}
			messages++
			// Whether the one that fell silent received a message isn't known.
			arrived, unknown := strings.Contains(s.Text, "(received after 1.000 ms)"), to.Pod == "ledger-4"
			if !strings.HasPrefix(s.Text, from.Pod+" -> "+to.Pod+" "+s.Kind) || unknown && (s.Lost || arrived) ||
				!unknown && s.Lost == arrived {
				t.Errorf("%s: got step %+v to %+v", algorithm, s, to)
			}
		}
		if messages+got.Omitted != total || got.Omitted > 0 || notes == 0 || len(got.Members) != 5 {
			t.Errorf("%s: got %d messages, %d notes, %d omitted and %d members, want %d messages", algorithm, messages, notes,
				got.Omitted, len(got.Members), total)
		}
	}
}

// TestSequenceIsBounded: a large election has those lifelines and steps that come first.
func TestSequenceIsBounded(t *testing.T) {
	got := transcript.Merge(
		simulate(t, "Bully", transcript.MaxLifelines+10).journals(func(election.ID) time.Duration { return 0 }), 0).Sequence()
	if len(got.Members) != transcript.MaxLifelines || len(got.Steps) != transcript.MaxArrows || got.Omitted == 0 {
		t.Errorf("got %d lifelines, %d steps and %d omitted, want the bounds", len(got.Members), len(got.Steps), got.Omitted)
	}
	for _, s := range got.Steps {
		if !strings.HasPrefix(s.Text, got.Members[s.From].Pod+" ") {
			t.Errorf("got step %+v of %s", s, got.Members[s.From].Pod)
		}
	}
}
