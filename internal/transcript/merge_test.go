package transcript_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// Whatever the clocks say, the transcript has each step once, causes before effects, the
// messages that the simulator counted, and, because messages take equally long, its times.
func TestWrongClocksDontMatter(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		for processes := 3; processes <= 7; processes++ {
			s := simulate(t, algorithm, processes)
			right := transcript.Merge(s.journals(func(election.ID) time.Duration { return 0 }), 0)
			checkOrder(t, right)
			for kind, count := range s.outcome.Messages {
				expect.Equalf(t, right.Messages[kind.String()], count,
					"%s of %d: messages %s (as in the simulation)", algorithm, processes, kind)
			}
			if want := podName(s.outcome.Coordinator); right.Coordinator != want ||
				right.Former != podName(election.ID(processes)) {
				t.Errorf("%s of %d: got coordinator %s after %s, want %s", algorithm, processes,
					right.Coordinator, right.Former, want)
			}
			for seed := range uint64(5) {
				wrong := transcript.Merge(s.journals(wrongClocks(seed)), 0)
				checkOrder(t, wrong)
				expect.EqualSlicesf(t, times(wrong), times(right), "%s of %d, seed %d: times", algorithm, processes, seed)
			}
		}
	}
}

// checkOrder checks that the Lamport timestamps and the times of a transcript rise along each agent and each message.
func checkOrder(t *testing.T, e *transcript.Election) {
	t.Helper()
	clocks, sent := map[string]uint64{}, map[transcript.Letter]bool{}
	last := int64(0)
	for i, s := range e.Steps {
		if m := transcript.Received(&s.Step); m != nil {
			if slices.Contains(e.Members, m.From) && m.From != e.Former && !sent[transcript.LetterOf(m)] {
				t.Errorf("%s: step %d of %s receives %+v before it was sent", e.Describe(), i, s.Agent, *m)
			}
			clocks[s.Agent] = max(clocks[s.Agent], m.Lamport)
		}
		for k := range s.Sent {
			m := &s.Sent[k]
			expect.AtLeastf(t, m.Lamport, clocks[s.Agent]+1, "%s: step %d of %s: Lamport time", e.Describe(), i, s.Agent)
			clocks[s.Agent], sent[transcript.LetterOf(m)] = m.Lamport, true
		}
		expect.AtLeastf(t, s.Micros, last, "%s: step %d of %s: time", e.Describe(), i, s.Agent)
		last = s.Micros
	}
}

// times returns the steps with their times, in an order that doesn't depend on that of steps at the same time.
func times(e *transcript.Election) []string {
	var texts []string
	for _, s := range e.Steps {
		texts = append(texts, fmt.Sprintf("%8d %s %s %v", s.Micros, s.Agent, s.Input, s.Message))
	}
	slices.Sort(texts)
	return texts
}

func TestOutputs(t *testing.T) {
	s := simulate(t, "Bully", 4)
	e := transcript.Merge(s.journals(wrongClocks(1)), 0, transcript.Missing{"ledger-3", `pods "ledger-3" not found`})
	if e.Cause != control.EndSilence || e.Began.Sub(epoch).Abs() > 11*time.Second {
		t.Errorf("got cause %q and beginning %s, want silence at about %s", e.Cause, e.Began, epoch)
	}
	e.Began = epoch
	var text, diagram bytes.Buffer
	e.WriteText(&text)
	must.Succeed(t, e.WriteMermaid(&diagram))
	golden.Compare(t, filepath.Join("testdata", "bully.txt"), text.String())
	golden.Compare(t, filepath.Join("testdata", "bully.mermaid"), diagram.String())
	encoded, err := json.MarshalIndent(e, "", " ")
	must.Succeed(t, err)
	golden.Compare(t, filepath.Join("testdata", "bully.json"), string(encoded)+"\n")
}

// keep returns the journals with only those steps for which keep returns true.
func keep(journals []journal.Journal, keep func(agent string, s *journal.Step) bool) []journal.Journal {
	for i := range journals {
		j := &journals[i]
		j.Steps = slices.DeleteFunc(j.Steps, func(s journal.Step) bool { return !keep(j.Agent, &s) })
	}
	return journals
}

func TestElectionUnderWay(t *testing.T) {
	s := simulate(t, "StatusTable", 3)
	e := transcript.Merge(keep(s.journals(wrongClocks(1)), func(_ string, s *journal.Step) bool {
		found := transcript.Recognition(s)
		return found == nil || found.Term == firstTerm
	}), 0)
	if e == nil || e.Coordinator != "" || e.Term != 0 || e.Former != "ledger-2" || e.Messages["COORDINATOR"] == 0 {
		t.Errorf("got %+v, want an election without a result", e)
	}
}

// The former coordinator knew why it resigned, and told the others.
func TestCauseOfResignationIsDescribed(t *testing.T) {
	for cause, want := range map[string]string{
		"session-closed": "after the application of ledger-2 closed its session",
		"preempted":      "after ledger-2 handed over to a higher member",
		"stopped":        "after the agent of ledger-2 was stopped",
		"eclipse":        "after ledger-2 fell silent",
	} {
		journals := simulate(t, "StatusTable", 3).journals(wrongClocks(1))
		for i := range journals {
			for _, p := range transcript.Cut(&journals[i]) {
				if transcript.Loss(p) != nil {
					must.Succeed(t, transcript.Loss(p).Cause.UnmarshalText([]byte(cause)))
				}
			}
		}
		if got := transcript.Merge(journals, 0).Describe(); !strings.HasSuffix(got, want) {
			t.Errorf("%s: got %q, want the end %q", cause, got, want)
		}
	}
}

func TestTermsSelectElections(t *testing.T) {
	journals := simulate(t, "StatusTable", 3).journals(wrongClocks(1))
	expect.EqualSlicesf(t, transcript.Terms(journals), []uint64{firstTerm, firstTerm + 1}, "terms")
	if e := transcript.Merge(journals, firstTerm); e.Term != firstTerm ||
		e.Coordinator != "ledger-2" || len(e.Steps) != 2 {
		t.Errorf("got %+v, want the election in the first term", e)
	}
	expect.Equalf(t, transcript.Merge(journals, firstTerm+2) == nil, true, "no election in the third term")
	expect.Equalf(t, transcript.Merge(nil, 0) == nil, true, "no election without journals")
}

// TestWaitsOfClients: those at all agents count, but not those for other coordinators.
func TestWaitsOfClients(t *testing.T) {
	journals := simulate(t, "StatusTable", 3).journals(wrongClocks(1))
	waits := func(of ...control.Wait) string {
		for i := range journals {
			journals[i].Waits = nil
			if i < len(of) {
				journals[i].Waits = []control.Wait{{Term: firstTerm, Connections: 50, LongestMicros: 1e6}, of[i]}
			}
		}
		return transcript.Merge(journals, 0).DescribeWaits()
	}
	wait := func(connections, inVain uint64, micros int64) control.Wait {
		return control.Wait{Term: firstTerm + 1, Connections: connections, InVain: inVain, LongestMicros: micros}
	}
	expect.Equal(t, waits(), "")
	expect.Equal(t, waits(wait(0, 0, 0)), "no connection waited")
	expect.Equal(t, waits(wait(0, 0, 0), wait(0, 7, 0)), "no connection waited, and 7 in vain")
	expect.Equal(t, waits(wait(3, 0, 9013), wait(11, 2, 8000)),
		"14 connections waited, the longest for 9.013 ms, and 2 in vain")
	var text strings.Builder
	transcript.Merge(journals, 0).WriteText(&text)
	expect.Containsf(t, text.String(),
		".\nClients: 14 connections waited, the longest for 9.013 ms, and 2 in vain.\n", "text")
}

// An agent that overwrote a part, one that has started since, and one that isn't reachable.
func TestMissingPartsAreNamed(t *testing.T) {
	s := simulate(t, "StatusTable", 5)
	journals := s.journals(wrongClocks(1))
	journals[0].Omitted = 7
	journals[0].Steps = journals[0].Steps[1:]
	restarted := journal.Journal{Group: "ledger", Agent: "ledger-4", Life: 9, Steps: []journal.Step{
		{At: epoch.Add(time.Hour), Input: "recover"},
		{At: epoch.Add(time.Hour), Input: "tick", Events: []journal.Event{
			{Kind: "recognised", Peer: "ledger-3", Term: firstTerm + 1},
		}},
	}}
	e := transcript.Merge(append(slices.Delete(journals, 1, 2), restarted), 0, transcript.Missing{"ledger-1", "no answer"})
	want := []transcript.Missing{
		{"ledger-1", "no answer"},
		{"ledger-0", "incomplete: newer entries have replaced the first ones"},
		{"ledger-4", "its agent has started since then"},
	}
	if !slices.Equal(e.Missing, want) ||
		slices.ContainsFunc(e.Steps, func(s transcript.AgentStep) bool { return s.Agent == "ledger-4" }) {
		t.Errorf("got missing parts %v, want %v", e.Missing, want)
	}
}

// A lost message has a note, unless its receiver may have received it.
func TestLostMessagesAreMarked(t *testing.T) {
	s := simulate(t, "StatusTable", 3)
	announced := func(s *journal.Step) bool { return s.Message != nil && s.Message.Kind == "COORDINATOR" }
	for omitted, want := range map[uint64]int{0: 1, 1: 0} {
		journals := keep(s.journals(wrongClocks(1)), func(_ string, s *journal.Step) bool { return !announced(s) })
		journals[0].Omitted = omitted
		if omitted > 0 {
			journals[0].Steps = journals[0].Steps[1:]
		}
		var text bytes.Buffer
		transcript.Merge(journals, 0).WriteText(&text)
		expect.Equalf(t, strings.Count(text.String(), "COORDINATOR term 65538 (not received)"), want,
			"%d entries are omitted: lost messages", omitted)
	}
}

func TestJournalsOfNewerAgentsAreRefused(t *testing.T) {
	for _, s := range []journal.Step{
		{Input: "surprise"},
		{Input: "tick", Events: []journal.Event{{Kind: "surprise"}}},
		{Input: "tick", Sent: []journal.Message{{Kind: "surprise"}}},
	} {
		err := transcript.Check(&journal.Journal{Steps: []journal.Step{s}})
		expect.ErrorContainsf(t, err, `doesn't know "surprise": update the plugin`,
			"%+v: error (the agent is newer)", s)
	}
	for _, j := range simulate(t, "Bully", 3).journals(wrongClocks(1)) {
		expect.Succeedf(t, transcript.Check(&j), "%s", j.Agent)
	}
}

// Journals that contradict each other don't stop the merge: each step waits for the other.
func TestContradictingJournalsAreMerged(t *testing.T) {
	message := func(from, to string) journal.Message { return journal.Message{Kind: "OK", From: from, To: to, Term: 1} }
	there, back := message("a", "b"), message("b", "a")
	e := transcript.Merge([]journal.Journal{
		{Agent: "a", Steps: []journal.Step{{At: epoch, Input: "receive", Message: &back, Sent: []journal.Message{there}}}},
		{Agent: "b", Steps: []journal.Step{{At: epoch, Input: "receive", Message: &there, Sent: []journal.Message{back}}}},
	}, 0)
	expect.Equalf(t, len(e.Steps), 2, "steps (both)")
}

// Messages from a to b and from c to a take 1 ms, those from b to a and from a to c 9 ms. So the
// clocks of b and c, which are both 100 ms behind, seem to differ by 8 ms, and a message from b
// to c seems to arrive before it was sent. The order shows that it didn't.
func TestCausesComeFirstWhateverTheEstimate(t *testing.T) {
	message := func(from, to string, lamport uint64) journal.Message {
		return journal.Message{Kind: "OK", From: from, To: to, Term: 1, Lamport: lamport}
	}
	at := func(millis, behind int) time.Time { return epoch.Add(time.Duration(millis-behind) * time.Millisecond) }
	toB, toC := message("a", "b", 1), message("a", "c", 2)
	direct, fromB, fromC := message("b", "c", 3), message("b", "a", 4), message("c", "a", 5)
	members := []journal.Member{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	e := transcript.Merge([]journal.Journal{
		{Agent: "a", Members: members, Steps: []journal.Step{
			{At: at(0, 0), Input: "campaign", Sent: []journal.Message{toB, toC}},
			{At: at(10, 0), Input: "receive", Message: &fromB},
			{At: at(10, 0), Input: "receive", Message: &fromC},
		}},
		{Agent: "b", Members: members, Steps: []journal.Step{
			{At: at(1, 100), Input: "receive", Message: &toB, Sent: []journal.Message{direct, fromB}},
		}},
		{Agent: "c", Members: members, Steps: []journal.Step{
			{At: at(2, 100), Input: "receive", Message: &direct},
			{At: at(9, 100), Input: "receive", Message: &toC, Sent: []journal.Message{fromC}},
		}},
	}, 0)
	checkOrder(t, e)
	expect.Equalf(t, len(e.Steps), 6, "steps")
}

// TestMalformedJournals: an agent may answer anything. What Check accepts must not stop the program that merges it.
func TestMalformedJournals(t *testing.T) {
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 0))
		algorithm := []string{"Bully", "RingAllIDs", "StatusTable"}[rng.IntN(3)]
		journals := simulate(t, algorithm, 4).journals(func(election.ID) time.Duration { return 0 })
		for range 1 + rng.IntN(6) {
			spoil(rng, &journals[rng.IntN(len(journals))])
		}
		journals = slices.DeleteFunc(journals, func(j journal.Journal) bool { return transcript.Check(&j) != nil })
		for _, term := range append(transcript.Terms(journals), 0) {
			e := transcript.Merge(journals, term)
			if e == nil {
				continue
			}
			e.Describe()
			e.WriteText(io.Discard)
			e.Sequence()
			expect.Succeedf(t, e.WriteMermaid(io.Discard), "seed %d", seed)
		}
	}
}

// spoil changes something in a journal.
func spoil(rng *rand.Rand, j *journal.Journal) {
	if len(j.Steps) == 0 {
		return
	}
	s := &j.Steps[rng.IntN(len(j.Steps))]
	names := []string{"", "ledger-0", "ledger-3", "nobody"}
	name := names[rng.IntN(len(names))]
	switch rng.IntN(10) {
	case 0:
		s.Message = nil
	case 1:
		kinds := []string{"receive", "gone", "tick", "step-down", "adopt"}
		s.Input = kinds[rng.IntN(len(kinds))]
	case 2:
		s.Peer = name
	case 3:
		s.At = []time.Time{{}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), s.At.Add(-time.Hour)}[rng.IntN(3)]
	case 4:
		j.Members = nil
	case 5:
		j.Steps = slices.Delete(j.Steps, 0, rng.IntN(len(j.Steps)))
	case 6:
		other := j.Steps[rng.IntN(len(j.Steps))]
		s.Events, s.Sent = other.Events, other.Sent
	case 7:
		for i := range s.Events {
			s.Events[i].Peer, s.Events[i].Term = name, rng.Uint64N(4)
		}
	case 8:
		if s.Message != nil {
			s.Message.From, s.Message.To = name, names[rng.IntN(len(names))]
		}
	case 9:
		j.Omitted = rng.Uint64N(2)
	}
}
