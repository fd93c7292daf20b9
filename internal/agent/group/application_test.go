package group

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
)

func TestSessionIsToldOfTheTenure(t *testing.T) {
	g := found(t, map[string]int{"a": 10}, nil).of("a")
	s := open(t, g)
	e := next(t, s, Lead)
	if l := g.Leader(); !l.Leading || l.Token != e.Token || l.Term != e.Term || e.Token != e.Term<<20|10 {
		t.Errorf("the session was told %+v while the group says %+v", e, l)
	}
}

// TestEachSessionHasATenureOfItsOwn: an application may be dead and started again
// before its agent knows. Nothing could tell the late writes of the one from
// those of the other if they had the same token.
func TestEachSessionHasATenureOfItsOwn(t *testing.T) {
	g := found(t, map[string]int{"a": 10}, nil).of("a")
	s, later := open(t, g), open(t, g)
	first := next(t, s, Lead)
	s.Close()
	if second := next(t, later, Lead); second.Token <= first.Token {
		t.Errorf("the token went from %d to %d", first.Token, second.Token)
	}
	later.Close()
	await(t, g, "nobody leads: no application lives", func(l Leader) bool { return !l.Leading && l.Coordinator == "" })
	next(t, open(t, g), Lead)
}

func TestWithoutItsSessionAProcessDoesNotStand(t *testing.T) {
	town := found(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) { g.Session = true })
	a := open(t, town.of("a"))
	e := next(t, a, Lead) // The highest two have none.
	if l := await(t, town.of("c"), "it follows a", func(l Leader) bool { return l.Coordinator == "a" }); l.Term != e.Term {
		t.Errorf("c follows in term %d, not %d", l.Term, e.Term)
	}
	c := open(t, town.of("c"))
	stop := next(t, a, Stop)
	if stop.Successor != "c" || stop.Term != e.Term {
		t.Errorf("a was told %+v", stop)
	}
	if err := town.of("a").ConfirmStopped(soon(t), a.ID(), stop.Term); err != nil {
		t.Fatal(err)
	}
	if lead := next(t, c, Lead); lead.Token <= e.Token {
		t.Errorf("c's token %d isn't above a's %d", lead.Token, e.Token)
	}
}

// TestNobodySucceedsBeforeTheApplicationStopped: every member is asked again and
// again while the application hesitates. What it waits for is the successor's
// wish for the office, which comes with each of its answers, several times.
func TestNobodySucceedsBeforeTheApplicationStopped(t *testing.T) {
	town := found(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) { g.Session = true })
	first, second := open(t, town.of("a")), open(t, town.of("a"))
	lead := next(t, first, Lead)
	open(t, town.of("c"))
	next(t, first, Stop)
	a := town.of("a")
	if l := a.Leader(); l.Leading || l.Token != 0 || l.Coordinator != "a" {
		t.Errorf("told to stop, a says %+v", l)
	}
	for what, c := range map[string]struct {
		session string
		term    uint64
		want    error
	}{
		"an unknown session": {"nobody", lead.Term, ErrNoSession},
		"another session":    {second.ID(), lead.Term, ErrWrongTerm},
		"another term":       {first.ID(), lead.Term + 1, ErrWrongTerm},
	} {
		if err := a.ConfirmStopped(soon(t), c.session, c.term); !errors.Is(err, c.want) {
			t.Errorf("%s: %v instead of %v", what, err, c.want)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		g := town.of(name)
		before := g.Watch("")
		ctx := soon(t)
		for range 5 { // The state is settled five heartbeats long.
			if _, err := g.Status(ctx); err != nil {
				t.Fatal(err)
			}
			<-time.After(20 * time.Millisecond)
		}
		if c, err := before.Next(ctx); err != nil || c.Leader.Coordinator != "a" {
			t.Errorf("%s follows %q, %v, while a's application hasn't stopped", name, c.Leader.Coordinator, err)
		}
	}
	first.Close() // Dead is stopped, too.
	await(t, town.of("c"), "c leads", leads)
}

// TestOnlyTheSessionThatWasToldLeads: a former life of the application must not go
// on with the token of the next one.
func TestOnlyTheSessionThatWasToldLeads(t *testing.T) {
	a := found(t, map[string]int{"a": 10}, nil).of("a")
	former, s := open(t, a), open(t, a)
	renew := func(of *Session, wanted uint64) {
		t.Helper()
		l, err := a.RenewSession(soon(t), of.ID())
		if err != nil || l.Coordinator != "a" || l.Token != wanted || l.Leading != (wanted != 0) || (l.RemainingMillis != nil) != l.Leading {
			t.Errorf("token %d is renewed by %+v, %v", wanted, l, err)
		}
	}
	lead := next(t, former, Lead)
	renew(former, lead.Token)
	renew(s, 0)
	former.Close()
	lead = next(t, s, Lead)
	renew(s, lead.Token)
	for _, id := range []string{former.ID(), ""} {
		if l, err := a.RenewSession(soon(t), id); !errors.Is(err, ErrNoSession) {
			t.Errorf("session %q, which isn't open, is told %+v, %v", id, l, err)
		}
	}
}

func TestTheDrainTimeEnds(t *testing.T) {
	town := found(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) {
		g.Session, g.Timing.DrainTimeout = true, 50*time.Millisecond
	})
	a := open(t, town.of("a"))
	next(t, a, Lead)
	open(t, town.of("c"))
	stop := next(t, a, Stop)
	next(t, a, Lost)
	await(t, town.of("c"), "c leads", leads)
	if err := town.of("a").ConfirmStopped(soon(t), a.ID(), stop.Term); !errors.Is(err, ErrWrongTerm) {
		t.Errorf("an answer that comes too late: %v", err)
	}
}

func TestAProbeDecidesWhoStands(t *testing.T) {
	town := found(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil)
	await(t, town.of("c"), "c leads", leads)
	if err := town.of("c").ReportProbe(soon(t), false); err != nil {
		t.Fatal(err)
	}
	await(t, town.of("b"), "b leads", leads)
	if err := town.of("c").ReportProbe(soon(t), true); err != nil {
		t.Fatal(err)
	}
	await(t, town.of("c"), "c leads again", leads)

	s := open(t, town.of("c"))
	lead := next(t, s, Lead)
	await(t, town.of("b"), "b follows c", func(l Leader) bool { return l.Coordinator == "c" })
	if err := town.of("c").ReportProbe(soon(t), false); err != nil {
		t.Fatal(err)
	}
	next(t, s, Stop)
	if l := town.of("b").Leader(); l.Coordinator != "c" {
		t.Errorf("b says %+v while c's application hasn't stopped", l)
	}
	if err := town.of("c").ConfirmStopped(soon(t), s.ID(), lead.Term); err != nil {
		t.Fatal(err)
	}
	await(t, town.of("b"), "b leads again", leads)
}

// TestWhoWasToldToStopIsNotLeftInOffice: the probe may find it well again before it
// has stopped, or its time to do so is over.
func TestWhoWasToldToStopIsNotLeftInOffice(t *testing.T) {
	for name, drain := range map[string]time.Duration{"it stops": time.Minute, "it doesn't": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			c := found(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) { g.Timing.DrainTimeout = drain }).of("c")
			s := open(t, c)
			lead := next(t, s, Lead)
			unwell(t, c)
			if err := c.ReportProbe(soon(t), true); err != nil {
				t.Fatal(err)
			}
			stop := next(t, s, Stop)
			if drain < time.Minute {
				next(t, s, Lost)
			} else if err := c.ConfirmStopped(soon(t), s.ID(), stop.Term); err != nil {
				t.Fatal(err)
			}
			if again := next(t, s, Lead); again.Token <= lead.Token { // It is the highest.
				t.Errorf("the token went from %d to %d", lead.Token, again.Token)
			}
		})
	}
}

// TestWhoIsUnwellDoesNotLeadAgain, also when its tenure lapses before it has stopped.
func TestWhoIsUnwellDoesNotLeadAgain(t *testing.T) {
	a := found(t, map[string]int{"a": 10}, func(g *config.Group) { g.Safety.Lease = time.Second }).of("a")
	s := open(t, a)
	next(t, s, Lead)
	unwell(t, a)
	next(t, s, Stop)
	lapse(t, a)
	next(t, s, Lost)
	if err := a.ask(soon(t), func() {
		if a.app.standing {
			t.Error("it stands for election")
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// lapse keeps a group from renewing its tenure until that has run out.
func lapse(t *testing.T, g *Group) {
	t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	if err := g.do(func() { close(held); <-release }); err != nil {
		t.Fatal(err)
	}
	<-held
	defer close(release)
	for ctx := soon(t); g.cfg.Clock.Until(g.now.Load().until) > 0; time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
	}
}

// TestATenureEndsByTheClock: also where the group's goroutine can't notice.
func TestATenureEndsByTheClock(t *testing.T) {
	g := found(t, map[string]int{"a": 10}, nil).of("a")
	l := await(t, g, "a leads", leads)
	if l := g.Leader(); l.RemainingMillis == nil || *l.RemainingMillis > 200 {
		t.Errorf("the remaining time of a lease of 200 ms is missing or too long: %+v", l)
	}
	held, release := make(chan struct{}), make(chan struct{})
	if err := g.do(func() { close(held); <-release }); err != nil {
		t.Fatal(err)
	}
	<-held
	ctx := soon(t)
	for g.Leader().Leading && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if now := g.Leader(); now.Leading || now.Token != 0 || now.Coordinator != "" {
		t.Errorf("the lease has run out, but: %+v", now)
	}
	close(release)
	if again := await(t, g, "a leads in a new term", func(now Leader) bool {
		return now.Leading && now.Term > l.Term
	}); again.Token <= l.Token {
		t.Errorf("the token went from %d to %d", l.Token, again.Token)
	}
}

func unwell(t *testing.T, g *Group) {
	t.Helper()
	if err := g.ReportProbe(soon(t), false); err != nil {
		t.Fatal(err)
	}
}

// TestAnOldTenureIsNoNews: a session that is opened, or asks what is new, when
// the lease has run out unnoticed isn't told to lead.
func TestAnOldTenureIsNoNews(t *testing.T) {
	town := found(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil)
	c := town.of("c")
	waiting := open(t, c)
	l := await(t, c, "c leads", leads)
	held, release := make(chan struct{}), make(chan struct{})
	if err := c.do(func() { close(held); <-release }); err != nil {
		t.Fatal(err)
	}
	<-held
	opened := make(chan *Session)
	go func() { opened <- open(t, c) }()
	await(t, town.of("b"), "b leads", leads)
	close(release)
	for _, s := range []*Session{waiting, <-opened} {
		for {
			e, err := s.Next(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == Lead && e.Term == l.Term {
				t.Errorf("a session is told to lead in term %d, which is over", e.Term)
			}
			if e.Kind == Lead {
				break // It leads again: it is the highest.
			}
		}
		s.Close() // The next one's turn.
	}
}

// TestWhoDoesNotWaitIsToldNothing: what was asked may still be found out, by
// somebody else's goroutine.
func TestWhoDoesNotWaitIsToldNothing(t *testing.T) {
	g := found(t, map[string]int{"a": 10}, nil).of("a")
	for what, ask := range map[string]func(context.Context) (any, error){
		"the status":             func(ctx context.Context) (any, error) { return g.Status(ctx) },
		"whether it is withheld": func(ctx context.Context) (any, error) { return g.Excluded(ctx) },
	} {
		held, release := make(chan struct{}), make(chan struct{})
		if err := g.do(func() { close(held); <-release }); err != nil {
			t.Fatal(err)
		}
		<-held
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for len(g.mail) == 0 {
				runtime.Gosched()
			}
			cancel()
			<-ctx.Done()
			close(release)
		}()
		if answer, err := ask(ctx); err != nil && !reflect.ValueOf(answer).IsZero() {
			t.Errorf("asked %s, it answers %v and %+v", what, err, answer)
		}
	}
}
