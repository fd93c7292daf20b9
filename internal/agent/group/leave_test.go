package group

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
)

func TestStepDown(t *testing.T) {
	town := found(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) {
		g.Preemption.Stable = time.Minute // Who stepped down stays away.
	})
	await(t, town.of("c"), "c leads", leads)
	for _, name := range []string{"a", "b"} {
		await(t, town.of(name), "it follows c", func(l Leader) bool { return l.Coordinator == "c" })
	}
	if _, err := town.of("b").StepDown(soon(t), ""); !errors.Is(err, ErrNotLeading) {
		t.Errorf("a follower steps down: %v", err)
	}
	if _, err := town.of("c").StepDown(soon(t), "nobody"); !errors.Is(err, ErrNoSuccessor) {
		t.Errorf("in favour of nobody: %v", err)
	}
	var l Leader
	err := insist(soon(t), func(ctx context.Context) (err error) {
		l, err = town.of("c").StepDown(ctx, "a")
		return err
	})
	if err != nil || l.Coordinator != "a" && l.Coordinator != "b" {
		t.Errorf("c stepped down: %+v, %v", l, err)
	}
}

func TestLeavingHandsOver(t *testing.T) {
	town := found(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil)
	await(t, town.of("c"), "c leads", leads)
	for _, name := range []string{"a", "b"} {
		await(t, town.of(name), "it follows c", func(l Leader) bool { return l.Coordinator == "c" })
	}
	c := town.of("c")
	w := c.Watch("")
	c.Leave(soon(t))
	await(t, town.of("b"), "b leads", leads)
	for {
		if _, err := w.Next(soon(t)); errors.Is(err, ErrClosed) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.OpenSession(soon(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("a session in a group that was left: %v", err)
	}
	if _, err := c.Status(soon(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("the status of a group that was left: %v", err)
	}
}

// TestLeavingKeepsPromises although nobody is ready to succeed: somebody may be
// by then.
func TestLeavingKeepsPromises(t *testing.T) {
	town := found(t, map[string]int{"a": 10}, func(g *config.Group) { g.Safety.Lease = time.Second })
	a := town.of("a")
	await(t, a, "a leads", leads)
	until := ask(t, a)
	a.Leave(soon(t))
	if left := time.Until(until); left > 0 {
		t.Errorf("it left %s too early", left)
	}
}

// TestLeavingWaitsForTheApplication: also when nobody is ready to succeed, and
// when it has been told to stop already.
func TestLeavingWaitsForTheApplication(t *testing.T) {
	for name, priorities := range map[string]map[string]int{
		"nobody could succeed":       {"a": 10},
		"a hand-over has begun":      {"a": 10, "b": 20, "c": 30},
		"a successor has to be told": {"a": 30, "b": 20, "c": 10},
	} {
		t.Run(name, func(t *testing.T) {
			town := found(t, priorities, func(g *config.Group) {
				g.Session = len(priorities) > 1
				g.Safety.Lease = 3 * time.Second // It must not lapse while the application stops.
			})
			a := town.of("a")
			s := open(t, a)
			lead := next(t, s, Lead)
			if b := town.of("b"); b != nil {
				await(t, b, "it follows a", func(l Leader) bool { return l.Coordinator == "a" }) // Or it takes the office itself.
				open(t, b)
			}
			if name == "a hand-over has begun" {
				next(t, s, Stop)
			}
			left := make(chan struct{})
			go func() {
				a.Leave(soon(t))
				close(left)
			}()
			if name != "a hand-over has begun" {
				next(t, s, Stop)
			}
			if _, err := a.Status(soon(t)); err != nil {
				t.Fatal(err)
			}
			if l := a.Leader(); l.Leading || l.Coordinator != "a" {
				t.Errorf("while its application stops, a says %+v", l)
			}
			if err := a.ConfirmStopped(soon(t), s.ID(), lead.Term); err != nil {
				t.Error(err)
			}
			<-left
		})
	}
}

// TestWhoLeavesDoesNotLeadAgain: a tenure may lapse while its application stops, and
// where nobody else stands the next one would be its own.
func TestWhoLeavesDoesNotLeadAgain(t *testing.T) {
	a := found(t, map[string]int{"a": 10}, func(g *config.Group) { g.Safety.Lease = time.Second }).of("a")
	s := open(t, a)
	next(t, s, Lead)
	left := make(chan struct{})
	ctx := soon(t)
	go func() {
		a.Leave(ctx)
		close(left)
	}()
	next(t, s, Stop)
	lapse(t, a)
	next(t, s, Lost)
	if e, err := s.Next(soon(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("while its agent leaves, a session is told %+v, %v", e, err)
	}
	<-left
	if ctx.Err() != nil {
		t.Error("it waited for an application that had nothing to stop any more")
	}
}

// TestJoiningAgainUsesNewTerms: the process lives on, its Machine doesn't.
func TestJoiningAgainUsesNewTerms(t *testing.T) {
	town := found(t, map[string]int{"a": 10}, nil)
	first := await(t, town.of("a"), "a leads", leads)
	c := town.of("a").cfg
	town.of("a").Leave(soon(t))
	again, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Leave(t.Context())
	if second := await(t, again, "a leads again", leads); second.Token <= first.Token {
		t.Errorf("the token went from %d to %d", first.Token, second.Token)
	}
}
