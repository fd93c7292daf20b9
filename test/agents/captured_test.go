package agents

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/journal"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// clockTolerance is by how much the time of a step may differ from the kernel's time of a packet.
// An agent computes the wall clock of a step when its journal is read.
const clockTolerance = time.Millisecond

// letter identifies a message, in a journal and on the network.
type letter struct {
	from, to, kind string
	term, lamport  uint64
}

func letterOf(m *journal.Message) letter { return letter{m.From, m.To, m.Kind, m.Term, m.Lamport} }

// TestTranscriptMatchesPackets kills the coordinator of six groups, one for each algorithm, and
// compares the transcripts of the survivors with the packets that were on the network. Each
// message of a transcript was sent after the step that sent it, and before the step that received it; and each message
// of the algorithm that was on the network is in the transcript.
func TestTranscriptMatchesPackets(t *testing.T) {
	ctx, groups := testContext(t), journalGroups()
	const former = "d"
	packets := startCapture(t)
	agents := agentcluster.Start(t, agentcluster.Options{Agents: 4, Group: groups[0], Further: groups[1:]})
	must.Succeed(t, agents.Start())
	for _, g := range groups {
		coordinate(ctx, t, agents.In(g.Name), former)
	}
	killed, err := agents.Agent(former).Kill()
	must.Succeed(t, err)
	must.Succeed(t, agents.Agent(former).AwaitEnd())
	for _, g := range groups {
		t.Run(g.Algorithm, func(t *testing.T) {
			e := awaitTranscript(ctx, t, agents.In(g.Name), former, 0)
			comparePackets(ctx, t, e, packets, killed)
		})
	}
}

// comparePackets compares the messages between survivors.
func comparePackets(ctx context.Context, t *testing.T, e *transcript.Election, packets *capture, killed time.Time) {
	t.Helper()
	sent, received := map[letter]time.Time{}, map[letter]time.Time{}
	for i := range e.Steps {
		s := &e.Steps[i]
		for k := range s.Sent {
			if m := &s.Sent[k]; m.From != m.To && m.To != e.Former {
				sent[letterOf(m)] = s.At
			}
		}
		if m := s.Message; s.Input == election.Receive.String() && m.From != m.To && m.From != e.Former {
			received[letterOf(m)] = s.At
		}
	}
	var onNetwork map[letter]time.Time
	err := agentcluster.Await(ctx, func(context.Context) error { // The capture may be a moment late.
		messages, err := packets.of(e.Group)
		must.Succeed(t, err)
		onNetwork = map[letter]time.Time{}
		for _, m := range messages {
			onNetwork[letter{m.from, m.to, m.Kind.String(), uint64(m.Term), m.Lamport}] = m.at
		}
		for l := range received {
			if _, found := onNetwork[l]; !found {
				return fmt.Errorf("received, but not on the network: %+v", l)
			}
		}
		return nil
	})
	must.Succeed(t, err)
	compared := 0
	for l, at := range onNetwork {
		began, isSent := sent[l]
		ended, isReceived := received[l]
		if isSent && at.Before(began.Add(-clockTolerance)) {
			t.Errorf("%+v was on the network %s before the step that sent it", l, began.Sub(at))
		}
		if isReceived && ended.Add(clockTolerance).Before(at) {
			t.Errorf("%+v was on the network %s after the step that received it", l, at.Sub(ended))
		}
		if between := l.from != e.Former && l.to != e.Former; between && countsAsElection(l.kind) && at.After(killed) && !isSent {
			t.Errorf("on the network, but not in the transcript: %+v", l)
		}
		if isSent && isReceived {
			compared++
		}
	}
	if compared < 3 {
		t.Errorf("got %d messages to compare, want at least 3: %s %v", compared, e.Describe(), e.Messages)
	}
	t.Logf("%s: %d messages compared", e.Describe(), compared)
}
