package group

import (
	"context"
	"errors"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

func leaderInTerm(n uint64) Leader { return Leader{Group: "ledger", Term: n} }

func nextTerm(t *testing.T, w *Watcher) (string, uint64) {
	t.Helper()
	c, err := w.Next(t.Context())
	must.Succeed(t, err)
	return c.ID, c.Leader.Term
}

func TestWatchersSeeEveryChangeInOrder(t *testing.T) {
	g := &Group{feed: newFeed(7)}
	g.feed.append(leaderInTerm(1))
	w := g.Watch("")
	for n := uint64(1); n <= 100; n++ {
		if _, term := nextTerm(t, w); term != n {
			t.Fatalf("change %d: got term %d", n, term)
		}
		g.feed.append(leaderInTerm(n + 1))
		g.feed.append(leaderInTerm(n + 1)) // no change
	}
}

func TestWatchResumesAfterID(t *testing.T) {
	g := &Group{feed: newFeed(7)}
	for n := uint64(1); n <= feedSize+10; n++ {
		g.feed.append(leaderInTerm(n))
	}
	last := uint64(feedSize + 10)
	for after, want := range map[string]uint64{
		"":             last, // the current state
		"00000007-200": 201,
		"00000007-266": 0, // nothing yet
		"00000007-267": last,
		"00000007-11":  12,
		"00000007-10":  last, // not stored any more
		"00000008-200": last, // of another incarnation
		"00000007-x":   last,
		"x":            last,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if want == 0 {
			cancel()
		}
		c, err := g.Watch(after).Next(ctx)
		if want == 0 && !errors.Is(err, context.Canceled) || want > 0 && (err != nil || c.Leader.Term != want) {
			t.Errorf("after %q: got %+v, %v, want term %d", after, c, err, want)
		}
		cancel()
	}
}

func TestSlowWatcherGetsError(t *testing.T) {
	g := &Group{feed: newFeed(7)}
	g.feed.append(leaderInTerm(1))
	w := g.Watch("")
	for n := range uint64(feedSize) {
		g.feed.append(leaderInTerm(n + 2))
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, ErrWatcherTooSlow) {
		t.Errorf("watcher that missed changes: got %v, want %v", err, ErrWatcherTooSlow)
	}
	g.feed.close()
	w = g.Watch("")
	if _, term := nextTerm(t, w); term != feedSize+1 {
		t.Errorf("got last term %d, want %d", term, feedSize+1)
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("watcher of a group that was left: got %v, want %v", err, ErrClosed)
	}
}
