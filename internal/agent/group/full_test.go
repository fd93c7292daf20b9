package group

import (
	"testing"
	"testing/synctest"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestFullInboxDelaysNoOtherGroup: what all groups of an agent are told doesn't wait for one
// whose goroutine doesn't respond.
func TestFullInboxDelaysNoOtherGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, inform := range map[string]func(*Group){
			"PeerEnded":    func(g *Group) { g.PeerEnded("b", 1) },
			"PeerRefused":  func(g *Group) { g.PeerRefused("b") },
			"CorrectClock": (*Group).CorrectClock,
			"Refresh":      (*Group).Refresh,
		} {
			a := newLoneMember(t, "a", func(g *config.Group) { g.List.Members = []control.Member{member("a", 10), member("b", 20)} })
			blocked, unblock := make(chan struct{}), make(chan struct{})
			must.Succeed(t, a.enqueue(func() {
				close(blocked)
				<-unblock
			}))
			<-blocked
			for a.tryEnqueue(func() {}) {
				continue
			}
			informed := make(chan struct{})
			go func() {
				inform(a)
				close(informed)
			}()
			select {
			case <-informed:
			case <-testwait.Context(t).Done():
				t.Errorf("%s waits for a full inbox", name)
			}
			close(unblock)
			expect.Succeedf(t, a.AwaitRoundTrip(testwait.Context(t)), "%s", name)
		}
	})
}
