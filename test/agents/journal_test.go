package agents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// announcements are the messages with which each algorithm announces the coordinator or, if it has none, elects it.
var announcements = map[string]string{
	"Bully": "COORDINATOR", "StatusTable": "COORDINATOR", "RingAllIDs": "NEW_COORDINATOR",
	"RingChampion":   "NEW_COORDINATOR",
	"RingActiveList": "ELECT", "RingSkip": "COORDINATOR",
}

// journalGroups returns a group for each algorithm.
func journalGroups() []agentcluster.Group {
	var groups []agentcluster.Group
	for _, algorithm := range catalog.Names() {
		groups = append(groups, agentcluster.Group{
			Name: strings.ToLower(algorithm), Algorithm: algorithm, Timing: recoveryTiming,
			Safety:     agentcluster.Safety{Mode: "Majority", LeaseMillis: recoveryLeaseMillis},
			Preemption: agentcluster.Preemption{Policy: "Never"},
		})
	}
	return groups
}

// TestTranscriptOfRealElection kills the coordinator of six groups, one for each algorithm, and merges the journals of
// the survivors. Their transcript has who lost the coordinator, the messages of the algorithm and the grants, in causal
// order, although the clock of one agent is wrong; and each agent has as many messages of elections in its journal as
// it has counted when it sent them.
func TestTranscriptOfRealElection(t *testing.T) {
	groups := journalGroups()
	const former = "d"
	agents := newGroup(t, agentcluster.Options{Agents: 4, TLS: true, Group: groups[0], Further: groups[1:]})
	agents.start()
	for _, g := range groups {
		agents.in(g.Name).coordinate(former)
	}
	killed := agents.kill(former)
	for _, g := range groups {
		t.Run(g.Algorithm, func(t *testing.T) {
			in := agents.in(g.Name)
			e := in.awaitTranscript(former)
			// If it couldn't renew its lease before, because the machine was too busy, it has named a successor.
			elected := e.Cause == control.EndCrash || e.Cause == control.EndSilence
			if elected && e.Messages[announcements[g.Algorithm]] == 0 || e.Messages["GRANT"] == 0 {
				t.Errorf("got %s with messages %v, want %s and grants", e.Describe(), e.Messages, announcements[g.Algorithm])
			}
			checkCausalOrder(t, e)
			if e.Cause == control.EndCrash {
				checkTimes(t, e, killed)
			}
			in.checkCounters(t, g.Name)
			if t.Failed() {
				e.WriteText(t.Output())
			}
		})
	}
}

// awaitTranscript returns the transcript of the election after the tenure of a coordinator, as
// soon as all others know the result.
func (g *testGroup) awaitTranscript(former string) *transcript.Election {
	g.t.Helper()
	var e *transcript.Election
	g.await(func(ctx context.Context) error {
		journals, err := g.readJournals(ctx)
		if err != nil {
			return err
		}
		for i := range journals {
			if journals[i].Agent == "a" {
				setClock(&journals[i], 5*time.Second)
			}
		}
		terms := transcript.Terms(journals)
		for _, term := range slices.Backward(terms) {
			if e = transcript.Merge(journals, term); e.Former == former && e.Coordinator != former &&
				follows(e) == len(journals) {
				return nil
			}
		}
		return fmt.Errorf("no complete election after %s in terms %v", former, terms)
	})
	return e
}

// setClock changes a journal as if the clock of its agent had been ahead.
func setClock(j *journal.Journal, ahead time.Duration) {
	j.At = j.At.Add(ahead)
	for i := range j.Steps {
		j.Steps[i].At = j.Steps[i].At.Add(ahead)
	}
}

// follows returns how many agents have recognized the coordinator in a transcript.
func follows(e *transcript.Election) int {
	followers := map[string]bool{}
	for _, s := range e.Steps {
		for _, event := range s.Events {
			if recognized := event.Kind == election.Recognized.String() ||
				event.Kind == election.TenureStarted.String(); recognized && event.Term == e.Term {
				followers[s.Agent] = true
			}
		}
	}
	return len(followers)
}

func (g *testGroup) readJournals(ctx context.Context) ([]journal.Journal, error) {
	var journals []journal.Journal
	for _, name := range g.Running() {
		j, err := g.Journal(ctx, name)
		if err == nil {
			err = transcript.Check(&j)
		}
		if err != nil {
			return nil, err
		}
		journals = append(journals, j)
	}
	return journals, nil
}

// checkCausalOrder checks that each message of an election is sent before it is received, and
// that the transcript begins with the loss of the former coordinator. Messages of the office
// may be repeated, and repetitions aren't recorded.
func checkCausalOrder(t *testing.T, e *transcript.Election) {
	t.Helper()
	type letter struct {
		from, to, kind string
		term, lamport  uint64
	}
	letterOf := func(m *journal.Message) letter { return letter{m.From, m.To, m.Kind, m.Term, m.Lamport} }
	sent, received := map[letter]bool{}, 0
	for i := range e.Steps {
		s := &e.Steps[i]
		if m := s.Message; s.Input == election.Receive.String() && countsAsElection(m.Kind) {
			if received++; !sent[letterOf(m)] {
				t.Errorf("step %d: %s receives %+v before it was sent", i, s.Agent, *m)
			}
		}
		for k := range s.Sent {
			sent[letterOf(&s.Sent[k])] = true
		}
	}
	if received == 0 || len(e.Milestones) < 3 || e.Milestones[0].Micros != 0 ||
		!strings.Contains(e.Milestones[0].Text, e.Former) {
		t.Errorf("got %d messages and milestones %+v, want at least the loss of %s, the grants and the last follower",
			received, e.Milestones, e.Former)
	}
}

// checkTimes checks that the journals of agents whose clock is right have the times since the coordinator was killed.
func checkTimes(t *testing.T, e *transcript.Election, killed time.Time) {
	t.Helper()
	for i := range e.Steps {
		if s := &e.Steps[i]; s.Agent != "a" && (s.At.Before(killed) || s.At.After(time.Now())) {
			t.Errorf("step %d of %s is at %s, want a time after %s, and before now", i, s.Agent, s.At, killed)
		}
	}
}

// checkCounters compares the journals with the counters of sent messages, which are independent of them.
func (g *testGroup) checkCounters(t *testing.T, group string) {
	t.Helper()
	for _, name := range g.Running() {
		var counted, recorded map[string]int
		g.await(func(ctx context.Context) error {
			before, err := countersOf(ctx, g.Cluster, group, name)
			if err != nil {
				return err
			}
			j, err := g.Journal(ctx, name)
			if err != nil {
				return err
			}
			counted, err = countersOf(ctx, g.Cluster, group, name)
			if err == nil && !maps.Equal(before, counted) {
				err = errors.New("the agent is sending messages")
			}
			recorded = messagesOf(&j)
			return err
		})
		if !maps.Equal(counted, recorded) {
			t.Errorf("%s: got messages %v in the journal, want %v, as many as it has sent", name, recorded, counted)
		}
	}
}

var sentCounter = regexp.MustCompile(`conclave_messages_sent_total\{group="([a-z]+)",kind="([A-Z_]+)"\} (\d+)`)

// countersOf returns how many messages of elections an agent has sent, by kind.
func countersOf(ctx context.Context, agents *agentcluster.Cluster, group, name string) (map[string]int, error) {
	metrics, err := agents.Metrics(ctx, name)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, m := range sentCounter.FindAllStringSubmatch(metrics, -1) {
		n, err := strconv.Atoi(m[3])
		if err != nil {
			return nil, err
		}
		if n > 0 && m[1] == group && countsAsElection(m[2]) {
			counts[m[2]] = n
		}
	}
	if len(counts) == 0 {
		return nil, fmt.Errorf("%s has sent no messages of elections", name)
	}
	return counts, nil
}

// messagesOf counts the messages of elections that a journal has as sent to others.
func messagesOf(j *journal.Journal) map[string]int {
	counts := map[string]int{}
	for i := range j.Steps {
		for _, m := range j.Steps[i].Sent {
			if countsAsElection(m.Kind) && m.From != m.To {
				counts[m.Kind]++
			}
		}
	}
	return counts
}

func countsAsElection(kind string) bool {
	return slices.ContainsFunc(election.Kinds(), func(k election.Kind) bool { return k.String() == kind })
}
