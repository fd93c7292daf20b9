package group

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
)

// TestNobodySucceedsWhileSomebodyWhoAskedMayAct: who asks and holds no session
// can't be told to stop, so what the answer promised is kept.
func TestNobodySucceedsWhileSomebodyWhoAskedMayAct(t *testing.T) {
	town := found(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) {
		g.Preemption.Stable = time.Minute
		g.Safety.Lease = 2 * time.Second
	})
	c := town.of("c")
	await(t, c, "c leads", leads)
	for _, name := range []string{"a", "b"} {
		await(t, town.of(name), "it follows c", func(l Leader) bool { return l.Coordinator == "c" })
	}
	until := ask(t, c)
	if err := insist(soon(t), c.inFavourOf("b")); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(until); left > 0 {
		t.Errorf("b succeeded %s too early", left)
	}
}

// TestNoMoreIsPromisedThanAHandOverWaits: a lease may be longer.
func TestNoMoreIsPromisedThanAHandOverWaits(t *testing.T) {
	for name, c := range map[string]struct {
		members map[string]int
		leave   func(*testing.T, *Group)
	}{
		"it hands over": {map[string]int{"a": 10, "b": 20, "c": 30}, func(t *testing.T, g *Group) {
			if err := insist(soon(t), g.inFavourOf("b")); err != nil {
				t.Fatal(err)
			}
		}},
		"its application doesn't stop": {map[string]int{"c": 30}, func(t *testing.T, g *Group) {
			s := open(t, g)
			next(t, s, Lead)
			unwell(t, g)
			next(t, s, Stop)
			next(t, s, Lost)
		}},
		"it leaves": {map[string]int{"c": 30}, func(t *testing.T, g *Group) { g.Leave(soon(t)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			town := found(t, c.members, func(g *config.Group) {
				g.Preemption.Stable = time.Minute
				g.Safety.Lease, g.Timing.DrainTimeout = 2*time.Second, 100*time.Millisecond
			})
			leader := town.of("c")
			await(t, leader, "c leads", leads)
			for name := range c.members {
				await(t, town.of(name), "it follows c", func(l Leader) bool { return l.Coordinator == "c" })
			}
			until := ask(t, leader)
			c.leave(t, leader)
			if left := time.Until(until); left > 0 {
				t.Errorf("the office was given up %s too early", left)
			}
		})
	}
}

// TestWithoutADrainTimeNothingIsPromised, but who leads is still said.
func TestWithoutADrainTimeNothingIsPromised(t *testing.T) {
	a := found(t, map[string]int{"a": 10}, func(g *config.Group) { g.Timing.DrainTimeout = 0 }).of("a")
	await(t, a, "a leads", leads)
	if l, err := a.LeaderWithPromise(soon(t)); err != nil || !l.Leading || l.Token == 0 || l.RemainingMillis == nil || *l.RemainingMillis != 0 {
		t.Errorf("a says %+v, %v", l, err)
	}
}

// TestNothingIsPromisedInTheMidstOfAResignation: the log may be slow.
func TestNothingIsPromisedInTheMidstOfAResignation(t *testing.T) {
	town := found(t, map[string]int{"a": 10}, func(g *config.Group) { g.Safety.Lease = time.Second })
	of := town.of("a").cfg
	town.of("a").Leave(soon(t))
	resigns := make(slowly)
	of.Log = slog.New(resigns)
	a, err := New(of)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Leave(t.Context())
	await(t, a, "a leads", leads)
	unwell := make(chan error, 1)
	ctx := soon(t)
	go func() { unwell <- a.ReportProbe(ctx, false) }()
	var goOn chan struct{}
	select {
	case goOn = <-resigns:
	case <-ctx.Done():
		t.Fatal("it doesn't resign")
	}
	answers := make(chan Leader, 1)
	go func() {
		l, _ := a.LeaderWithPromise(ctx)
		answers <- l
	}()
	for len(a.mail)+len(answers) == 0 {
		runtime.Gosched()
	}
	close(goOn)
	if err := <-unwell; err != nil {
		t.Error(err)
	}
	if l := <-answers; l.Leading {
		t.Errorf("whoever asks while it resigns is told %+v", l)
	}
}

// slowly is a log that doesn't go on from a resignation before it is told to.
type slowly chan chan struct{}

func (s slowly) Handle(_ context.Context, r slog.Record) error {
	if r.Message == election.OfficeResigned.String() {
		goOn := make(chan struct{})
		s <- goOn
		<-goOn
	}
	return nil
}

func (s slowly) Enabled(context.Context, slog.Level) bool { return true }
func (s slowly) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s slowly) WithGroup(string) slog.Handler            { return s }

// TestADeadApplicationKeepsItsPromises: a part of it that holds no session may
// live, and goes by what it was promised.
func TestADeadApplicationKeepsItsPromises(t *testing.T) {
	for name, c := range map[string]struct {
		session bool
		die     func(*testing.T, *Group, *Session)
	}{
		"a probe fails":   {false, func(t *testing.T, g *Group, _ *Session) { unwell(t, g) }},
		"a session ends":  {true, func(_ *testing.T, _ *Group, s *Session) { s.Close() }},
		"another is open": {true, func(t *testing.T, g *Group, s *Session) { open(t, g); s.Close() }},
		"it hands over": {true, func(t *testing.T, g *Group, s *Session) {
			go func() { _ = insist(context.WithoutCancel(t.Context()), g.inFavourOf("b")) }()
			next(t, s, Stop)
			s.Close()
		}},
		"it stops since a probe fails": {true, func(t *testing.T, g *Group, s *Session) {
			unwell(t, g)
			stop := next(t, s, Stop)
			if err := g.ConfirmStopped(soon(t), s.ID(), stop.Term); err != nil {
				t.Error(err)
			}
			unwell(t, g)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			town := found(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) {
				g.Preemption.Stable = time.Minute
				g.Safety.Lease = time.Second
			})
			leader := town.of("c")
			var s *Session
			if c.session {
				s = open(t, leader)
			}
			first := await(t, leader, "c leads", leads)
			for _, name := range []string{"a", "b"} {
				await(t, town.of(name), "it follows c", func(l Leader) bool { return l.Coordinator == "c" })
			}
			if c.session {
				next(t, s, Lead)
			}
			until := ask(t, leader)
			c.die(t, leader, s)
			if _, err := leader.Status(soon(t)); err != nil { // By then it knows.
				t.Fatal(err)
			}
			if l := leader.Leader(); l.Leading {
				t.Errorf("a dead application is told that it leads: %+v", l)
			}
			await(t, town.of("a"), "there is another coordinator", func(l Leader) bool { return l.Coordinator != "" && l.Term > first.Term })
			if left := time.Until(until); left > 0 {
				t.Errorf("somebody succeeded %s too early", left)
			}
		})
	}
}

// ask is until when somebody who asks the coordinator may act.
func ask(t *testing.T, g *Group) time.Time {
	t.Helper()
	asked := time.Now()
	l, err := g.LeaderWithPromise(soon(t))
	if err != nil || l.RemainingMillis == nil {
		t.Fatalf("%s says %+v, %v", g.cfg.Self, l, err)
	}
	return asked.Add(time.Duration(*l.RemainingMillis) * time.Millisecond)
}
