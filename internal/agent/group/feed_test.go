package group

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

func leaderInTerm(n uint64) Leader { return Leader{Group: "ledger", Term: n} }

func nextTerm(t *testing.T, w *Watcher[Leader]) uint64 {
	t.Helper()
	state, err := w.Next(t.Context())
	must.Succeed(t, err)
	return state.Term
}

func TestWatchersSeeEveryChangeInOrder(t *testing.T) {
	g := &Group{feed: newFeed[Leader]()}
	g.feed.append(leaderInTerm(1))
	w := g.Watch()
	for n := uint64(1); n <= 100; n++ {
		if term := nextTerm(t, w); term != n {
			t.Fatalf("change %d: got term %d", n, term)
		}
		g.feed.append(leaderInTerm(n + 1))
	}
}

func TestChangeWakesItsWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		g := &Group{feed: newFeed[Leader]()}
		w, found := g.Watch(), make(chan error, 1)
		go func() {
			_, err := w.Next(ctx)
			found <- err
		}()
		synctest.Wait() // It waits by now.
		g.feed.append(leaderInTerm(1))
		expect.Succeed(t, <-found)
	})
}

// TestWatchersReadWhatCameBeforeTheEnd: one that lags behind misses no change, and a late one reads the last.
func TestWatchersReadWhatCameBeforeTheEnd(t *testing.T) {
	g := &Group{feed: newFeed[Leader]()}
	slow, last := g.Watch(), uint64(1000)
	for n := range last {
		g.feed.append(leaderInTerm(n + 1))
	}
	g.feed.close(ErrClosed)
	g.feed.append(leaderInTerm(last + 1))
	for n := range last {
		expect.Equalf(t, nextTerm(t, slow), n+1, "term of the next change")
	}
	late := g.Watch()
	expect.Equalf(t, nextTerm(t, late), last, "last term")
	for _, w := range []*Watcher[Leader]{slow, late} {
		_, err := w.Next(t.Context())
		expect.ErrorIsf(t, err, ErrClosed, "after the end")
	}
}

// TestFullInboxDelaysNoOtherGroup: what all groups of an agent are told doesn't wait for one
// whose goroutine doesn't respond.
func TestFullInboxDelaysNoOtherGroup(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		for name, inform := range map[string]func(*Group){
			"PeerEnded":   func(g *Group) { g.PeerEnded("b", 1) },
			"PeerRefused": func(g *Group) { g.PeerRefused("b") },
			"Refresh":     (*Group).Refresh,
		} {
			a := newLoneMember(t, "a",
				func(g *config.Group) { g.List.Members = []memberlist.Member{member("a", 10), member("b", 20)} })
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
