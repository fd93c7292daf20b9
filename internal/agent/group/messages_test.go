package group

import (
	"maps"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// sentKind is a kind of messages, and whether the transport may wait for further ones.
type sentKind struct {
	kind    election.Kind
	mayWait bool
}

// countingLink counts the messages of all members.
type countingLink struct {
	link
	sent map[sentKind]int
}

func (l countingLink) Send(to string, out transport.Outgoing) bool {
	l.cluster.mu.Lock()
	l.sent[sentKind{messageIn(l.cluster.t, out).Kind, out.MayWait}]++
	l.cluster.mu.Unlock()
	return l.link.Send(to, out)
}

// TestOnlyRenewalsMayWait: a member that is reached asks the others at once, and nothing that elects waits. A quiet
// tenure consists of heartbeats and their answers, which may.
func TestOnlyRenewalsMayWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		sent := map[sentKind]int{}
		c := newTunedCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(cfg *Config) {
			to, ok := cfg.Transport.(link)
			expect.Equalf(t, ok, true, "the transport is a link")
			cfg.Transport = countingLink{to, sent}
		})
		count := func() map[sentKind]int { // since the last call
			c.mu.Lock()
			defer c.mu.Unlock()
			defer clear(sent)
			return maps.Clone(sent)
		}
		c.awaitFollowers("c", "a", "b")
		elects := count()
		expect.AtLeastf(t, elects[sentKind{election.Probe, false}], 2, "questions after the first connection")
		for s := range elects {
			expect.Equalf(t, s.mayWait && s.kind != election.Beat && s.kind != election.Grant, false, "%s may wait", s.kind)
		}
		time.Sleep(testLease)
		count()
		time.Sleep(testLease)
		quiet := count()
		for s := range quiet {
			expect.Equalf(t, s.mayWait, true, "%s may wait in a quiet tenure", s.kind)
		}
		expect.Lenf(t, quiet, 2, "kinds of messages in a quiet tenure")
		status, err := c.group("a").Status(testwait.Context(t))
		must.Succeed(t, err)
		for _, row := range status.Processes {
			expect.Equalf(t, row.Connected, true, "%s is connected", row.Name)
		}
		expect.Lenf(t, status.Processes, 3, "rows")
	})
}
