package transcript

import (
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/diagram"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
)

// TestSequenceHasEachMessage: the diagram has the messages of the transcript in order, says when
// they arrived, and which were lost.
func TestSequenceHasEachMessage(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		e := Merge(simulate(t, algorithm, 5).journals(func(election.ID) time.Duration { return 0 }), 0)
		total := 0
		for _, n := range e.Messages {
			total += n
		}
		got := e.Sequence()
		messages, notes, last := 0, 0, 0.0
		for _, s := range got.Steps {
			if s.Millis < last {
				t.Errorf("%s: got %+v after %g ms", algorithm, s, last)
			}
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
			if !strings.HasPrefix(s.Text, from.Pod+" -> "+to.Pod+" "+s.Kind) || unknown && (s.Lost || arrived) || !unknown && s.Lost == arrived {
				t.Errorf("%s: got step %+v to %+v", algorithm, s, to)
			}
		}
		if messages+got.Omitted != total || got.Omitted > 0 || notes == 0 || len(got.Members) != 5 {
			t.Errorf("%s: got %d messages, %d notes, %d omitted and %d members, want %d messages", algorithm, messages, notes, got.Omitted, len(got.Members), total)
		}
	}
}

// TestSequenceIsBounded: a large election has those lifelines and steps that come first.
func TestSequenceIsBounded(t *testing.T) {
	got := Merge(simulate(t, "Bully", diagram.MaxLifelines+10).journals(func(election.ID) time.Duration { return 0 }), 0).Sequence()
	if len(got.Members) != diagram.MaxLifelines || len(got.Steps) != diagram.MaxArrows || got.Omitted == 0 {
		t.Errorf("got %d lifelines, %d steps and %d omitted, want the bounds", len(got.Members), len(got.Steps), got.Omitted)
	}
	for _, s := range got.Steps {
		if !strings.HasPrefix(s.Text, got.Members[s.From].Pod+" ") {
			t.Errorf("got step %+v of %s", s, got.Members[s.From].Pod)
		}
	}
}
