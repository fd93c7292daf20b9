package group

import (
	"context"
	"errors"
	"testing"
)

func states(n uint64) Leader { return Leader{Group: "ledger", Term: n} }

func nextTerm(t *testing.T, w *Watcher) (string, uint64) {
	t.Helper()
	c, err := w.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.ID, c.Leader.Term
}

func TestWatchersSeeEveryChangeInOrder(t *testing.T) {
	g := &Group{feed: newFeed(7)}
	g.feed.append(states(1))
	w := g.Watch("")
	for n := uint64(1); n <= 100; n++ {
		if _, term := nextTerm(t, w); term != n {
			t.Fatalf("change %d is %d", n, term)
		}
		g.feed.append(states(n + 1))
		g.feed.append(states(n + 1)) // no change
	}
}

func TestWatchesResume(t *testing.T) {
	g := &Group{feed: newFeed(7)}
	for n := uint64(1); n <= remembered+10; n++ {
		g.feed.append(states(n))
	}
	last := uint64(remembered + 10)
	for after, want := range map[string]uint64{
		"":             last, // the present state
		"00000007-200": 201,
		"00000007-266": 0, // nothing yet
		"00000007-267": last,
		"00000007-11":  12,
		"00000007-10":  last, // no longer remembered
		"00000008-200": last, // of another life
		"00000007-x":   last,
		"x":            last,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if want == 0 {
			cancel()
		}
		c, err := g.Watch(after).Next(ctx)
		if want == 0 && !errors.Is(err, context.Canceled) || want > 0 && (err != nil || c.Leader.Term != want) {
			t.Errorf("after %q comes %+v, %v; want %d", after, c, err, want)
		}
		cancel()
	}
}

func TestAWatcherThatIsTooSlowIsTold(t *testing.T) {
	g := &Group{feed: newFeed(7)}
	g.feed.append(states(1))
	w := g.Watch("")
	for n := range uint64(remembered) {
		g.feed.append(states(n + 2))
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, ErrWatcherTooSlow) {
		t.Errorf("a watcher that missed changes is told %v", err)
	}
	g.feed.close()
	w = g.Watch("")
	if _, term := nextTerm(t, w); term != remembered+1 {
		t.Errorf("the last state is %d", term)
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("a watcher of a group that was left is told %v", err)
	}
}
