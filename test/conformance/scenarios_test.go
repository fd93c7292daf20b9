package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var scenarios = []scenario{
	{name: "leads with the token of the agent", asyncio: true, short: true, steps: func(l *lane) error {
		if err := errors.Join(l.start("c"), l.awaitAll("c", "lead")); err != nil {
			return err
		}
		token := l.highest
		state, err := l.cluster.Leader(context.Background(), "c")
		if err != nil || state.Token != token {
			return fmt.Errorf("got token %d, want %d: %w", token, state.Token, err)
		}
		acting, left, err := l.acts("c")
		if err != nil || acting != token || left <= 0 || l.language != languageExec && left > int(lease.Milliseconds()) {
			return fmt.Errorf("acts with %d for %d ms, want %d for at most %s: %w", acting, left, token, lease, err)
		}
		return nil
	}},
	{name: "returns: the office is given up", asyncio: true, after: func(l *lane) error {
		return errors.Join(l.tell("c", "return"), l.awaitReturn("c", "nil", 0), l.awaitAll("b", "lead"))
	}},
	{name: "fails: the error is returned", asyncio: true, after: func(l *lane) error {
		return errors.Join(l.tell("c", "fail"), l.awaitReturn("c", "boom", 7), l.awaitAll("b", "lead"))
	}},
	{name: "hand-over waits for the function, and back", asyncio: true, short: true, after: func(l *lane) error {
		return errors.Join(l.stepDown("c"), l.awaitAll("c", "told stop", "done"), l.awaitAll("b", "lead"),
			l.stepDown("b"), l.awaitAll("b", "told stop", "done"), l.awaitAll("c", "lead"))
	}},
	{name: "hand-over waits for a function that stays", asyncio: true, after: func(l *lane) error {
		if err := errors.Join(l.tell("c", "hold"), l.awaitHeld("c"), l.awaitReady("b")); err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() { done <- l.stepDown("c") }()
		if err := l.awaitAll("c", "told stop"); err != nil {
			return err
		}
		before, err := l.renewals(context.Background(), "c") // The session goes on.
		if err := errors.Join(err, l.awaitRenewal("c", before)); err != nil {
			return err
		}
		if l.has("b", "lead") {
			return errors.New("b leads, although the function of c hasn't returned")
		}
		return errors.Join(l.tell("c", "return"), l.awaitAll("c", "done"), l.awaitAll("b", "lead"), <-done)
	}},
	{name: "a function that stays loses the office after the drain " +
		"timeout", asyncio: true, only: libraries, overlap: true, after: func(l *lane) error {
		if err := errors.Join(l.tell("c", "hold"), l.awaitHeld("c"), l.awaitReady("b"), l.stepDown("c"),
			l.awaitAll("c", "told stop"), l.awaitAll("b", "lead")); err != nil {
			return err
		}
		if l.has("c", "done") {
			return errors.New("c has returned, want that the test controls it")
		}
		// It takes part again.
		return errors.Join(l.tell("c", "return"), l.awaitAll("c", "done"), l.awaitReady("c"),
			l.stepDown("b"), l.awaitAll("c", "lead"))
	}},
	{name: "exits before the drain timeout if the function stays", asyncio: true, only: newer, exitLate: true, after: func(
		l *lane,
	) error {
		if err := errors.Join(l.tell("c", "hold"), l.awaitHeld("c"), l.awaitReady("b"), l.stepDown("c"),
			l.awaitAll("c", "told stop")); err != nil {
			return err
		}
		if status, err := l.awaitEnd("c"); err != nil || status != 1 {
			return fmt.Errorf("got status %d, %w, want 1", status, err)
		}
		return l.awaitAll("b", "lead")
	}},
	{name: "agent is killed", asyncio: true, overlap: true, only: libraries, run: func(s *scene) {
		s.each(leadThenWait)
		s.each(func(l *lane) error { return l.awaitReady("b") })
		s.do(s.Agent("c").Kill())
		s.each(func(l *lane) error {
			return errors.Join(l.awaitAll("c", "told agent-gone", "done"), l.awaitAll("b", "lead"))
		})
		s.repaired(s.Agent("c").Start())
		s.each(func(l *lane) error { return errors.Join(l.awaitReady("c"), l.stepDown("b"), l.awaitAll("c", "lead")) })
	}},
	{name: "agent is killed in Strict: the successor waits for the lease", kind: "strict", only: libraries, run: func(
		s *scene,
	) {
		s.each(leadThenWait)
		s.each(func(l *lane) error { return l.awaitReady("b") })
		s.do(s.Agent("c").Kill())
		s.each(func(l *lane) error {
			return errors.Join(l.awaitAll("c", "told agent-gone", "done"), l.awaitAll("b", "lead"))
		})
		s.repaired(s.Agent("c").Start())
	}},
	{name: "is told that it is elected during the former lease", kind: "strict", asyncio: true, short: true, run: func(
		s *scene,
	) {
		s.each(leadThenWait)
		s.each(func(l *lane) error { return l.awaitReady("b") })
		s.do(s.Agent("c").Kill())
		s.each(func(l *lane) error {
			within, err := l.await("b", "elected")
			millis, invalid := strconv.Atoi(within)
			if err := errors.Join(err, invalid); err != nil || millis < 1 || millis > int(3*lease.Milliseconds()) {
				return fmt.Errorf("elected within %s ms, %w, want at most three leases", within, err)
			}
			if l.has("b", "lead") {
				return errors.New("b leads before the former lease has ended")
			}
			return l.awaitAll("b", "lead")
		})
		s.repaired(s.Agent("c").Start())
		s.each(func(l *lane) error {
			err := errors.Join(l.awaitReady("c"), l.stepDown("b"), l.awaitAll("b", "told stop", "done"), l.awaitAll("c", "lead"))
			if l.language == languageExec {
				return err // What prepares has ended, or the office would not be released.
			}
			return errors.Join(err, l.awaitAll("b", "unelected"))
		})
	}},
	{name: "agent is frozen: the function stops before the lease " +
		"ends", asyncio: true, short: true, only: libraries, run: func(s *scene) {
		s.each(leadThenWait)
		s.each(func(l *lane) error { return l.awaitReady("b") })
		s.do(s.Agent("c").Stop())
		s.each(func(l *lane) error {
			return errors.Join(l.awaitAll("c", "told not-renewed", "done"), l.awaitAll("b", "lead"), l.checkIdle("c"))
		})
		s.repaired(s.Agent("c").Continue())
		s.each(func(l *lane) error { return errors.Join(l.awaitReady("c"), l.stepDown("b"), l.awaitAll("c", "lead")) })
	}},
	{name: "agent is frozen: exits before the lease ends if the function " +
		"stays", asyncio: true, only: newer, exitLate: true, run: func(s *scene) {
		s.each(leadThenWait)
		s.each(func(l *lane) error { return errors.Join(l.tell("c", "hold"), l.awaitHeld("c"), l.awaitReady("b")) })
		s.do(s.Agent("c").Stop())
		s.each(func(l *lane) error {
			if status, err := l.awaitEnd("c"); err != nil || status != 1 {
				return fmt.Errorf("got status %d, %w, want 1", status, err)
			}
			return l.awaitAll("b", "lead")
		})
		s.repaired(s.Agent("c").Continue())
	}},
	{name: "agent shuts down", run: func(s *scene) {
		s.each(leadThenWait)
		s.each(func(l *lane) error { return l.awaitReady("b") })
		must.Succeed(s.t, s.Agent("c").Terminate())
		s.each(func(l *lane) error { return errors.Join(l.awaitAll("c", "told stop", "done"), l.awaitAll("b", "lead")) })
		must.Succeed(s.t, s.Agent("c").AwaitEnd())
		s.repaired(s.Agent("c").Start())
	}},
	{name: "agent starts later", run: func(s *scene) {
		s.do(s.Agent("c").Kill())
		must.Succeed(s.t, s.Agent("c").AwaitEnd())
		s.each(func(l *lane) error { return l.start("c") })
		s.each(func(l *lane) error { return l.awaitLog("no session with agent") })
		s.repaired(s.Agent("c").Start())
		s.each(func(l *lane) error { return l.awaitAll("c", "lead") })
	}},
	{name: "agent restarts beside a process that waits", run: func(s *scene) {
		s.each(leadThenWait)
		s.each(func(l *lane) error { return l.awaitReady("b") })
		s.do(s.Agent("b").Kill())
		s.repaired(s.Agent("b").Start())
		s.each(func(l *lane) error { return errors.Join(l.awaitReady("b"), l.stepDown("c"), l.awaitAll("b", "lead")) })
	}},
	{name: "agent has no majority", only: libraries, run: func(s *scene) {
		agentcluster.NeedPartitions(s.t)
		s.each(leadThenWait)
		s.each(func(l *lane) error { return l.awaitReady("b") })
		must.Succeed(s.t, s.Partition([]string{"c"}, []string{"a", "b"}))
		s.each(func(l *lane) error { return errors.Join(l.awaitAll("c", "told", "done"), l.awaitAll("b", "lead")) })
		s.repaired(s.Heal())
	}},
	{name: "certificate of the agent expires", only: libraries, run: func(s *scene) {
		must.Succeed(s.t, s.Certify("c", 20*time.Second))
		s.do(s.Agent("c").Kill())
		must.Succeed(s.t, s.Agent("c").AwaitEnd())
		s.repaired(s.Agent("c").Start())
		s.each(leadThenWait)
		s.each(func(l *lane) error { return errors.Join(l.awaitAll("c", "told", "done"), l.awaitAll("b", "lead")) })
		s.repaired(s.Certify("c", time.Hour))
	}},
	{name: "process is killed", after: func(l *lane) error {
		if err := l.awaitReady("b"); err != nil {
			return err
		}
		l.kill("c")
		return l.awaitAll("b", "lead")
	}},
	{name: "process is frozen: it doesn't act when it " +
		"continues", asyncio: true, short: true, overlap: true, only: libraries, after: func(l *lane) error {
		if err := l.awaitReady("b"); err != nil {
			return err
		}
		before, err := l.renewals(context.Background(), "c")
		if err := errors.Join(err, l.awaitRenewal("c", before), l.signal("c", syscall.SIGSTOP),
			l.awaitAll("b", "lead")); err != nil {
			return err
		}
		return errors.Join(l.signal("c", syscall.SIGCONT), l.awaitAll("c", "told", "done"), l.checkIdle("c"),
			l.awaitReady("c"), l.stepDown("b"), l.awaitAll("c", "lead"))
	}},
	{name: "process is frozen in Available", kind: "available", overlap: true, only: libraries, after: func(
		l *lane,
	) error {
		if err := l.awaitReady("b"); err != nil {
			return err
		}
		before, err := l.renewals(context.Background(), "c")
		if err := errors.Join(err, l.awaitRenewal("c", before), l.signal("c", syscall.SIGSTOP),
			l.awaitAll("b", "lead")); err != nil {
			return err
		}
		return errors.Join(l.signal("c", syscall.SIGCONT), l.awaitAll("c", "told", "done"), l.checkIdle("c"))
	}},
	{name: "process is frozen while the office is handed over", overlap: true, only: libraries, after: func(
		l *lane,
	) error {
		return errors.Join(l.awaitReady("b"), l.signal("c", syscall.SIGSTOP), l.stepDown("c"), l.awaitAll("b", "lead"),
			l.signal("c", syscall.SIGCONT), l.awaitAll("c", "told", "done"), l.checkIdle("c"))
	}},
	{name: "process is frozen while it waits", only: libraries, after: func(l *lane) error {
		return errors.Join(l.awaitReady("b"), l.signal("b", syscall.SIGSTOP), l.signal("b", syscall.SIGCONT),
			l.stepDown("c"), l.awaitAll("b", "lead"))
	}},
	{name: "is told to end while it leads", asyncio: true, after: func(l *lane) error {
		told := "told ended"
		if l.language == languageExec {
			told = "told stop"
		}
		return errors.Join(l.awaitReady("b"), l.tell("c", "quit"), l.awaitAll("c", told, "done"),
			l.awaitReturn("c", "nil", 0), l.awaitAll("b", "lead"))
	}},
	{name: "is told to end while it waits", asyncio: true, after: func(l *lane) error {
		if err := errors.Join(l.awaitReady("b"), l.tell("b", "quit"), l.awaitReturn("b", "nil", 0)); err != nil ||
			l.has("b", "lead") {
			return fmt.Errorf("want that b ends without having led: %w", err)
		}
		if token, _, err := l.acts("c"); err != nil || token != l.highest {
			return fmt.Errorf("acts with token %d, %w, want %d", token, err, l.highest)
		}
		return nil
	}},
	{name: "two processes beside one agent lead one after the other", steps: func(l *lane) error {
		return errors.Join(l.start("c"), l.awaitAll("c", "lead"), l.start("c2"), l.awaitSessions("c", 2),
			l.tell("c", "return"), l.awaitAll("c2", "lead"))
	}},
	{name: "Strict: hand-over", kind: "strict", after: func(l *lane) error {
		return errors.Join(l.stepDown("c"), l.awaitAll("c", "told stop", "done"), l.awaitAll("b", "lead"))
	}},
	{name: "Available: no lease", kind: "available", only: libraries, after: func(l *lane) error {
		if _, left, err := l.acts("c"); err != nil || left < 1e6 {
			return fmt.Errorf("got %d ms, %w, want no end", left, err)
		}
		return errors.Join(l.stepDown("c"), l.awaitAll("c", "told stop", "done"), l.awaitAll("b", "lead"))
	}},
	{name: "group doesn't exist", asyncio: true, short: true, steps: func(l *lane) error {
		l.group = "nope"
		want := `cannot join group nope: the agent responded with status 404: group "nope" not found: GET /v1/groups ` +
			`lists the groups of this agent`
		return errors.Join(l.start("c"), l.awaitReturn("c", want, 1))
	}},
	{name: "address is invalid", only: libraries, steps: func(l *lane) error {
		return errors.Join(l.launch("c", "localhost:7374"), l.tell("c", "run"),
			l.awaitReturn("c", "the agent's address must be an http URL without a path, such as "+
				"http://127.0.0.1:7374, or a Unix socket, such as unix:///run/conclave/agent.sock, got", 1))
	}},
	{name: "leader", only: libraries, after: func(l *lane) error {
		return errors.Join(l.awaitReady("b"), l.tell("c", "leader"), l.awaitAll("c",
			fmt.Sprintf("leader c true %d", l.highest)),
			l.tell("b", "leader"), l.awaitAll("b", "leader c false 0"))
	}},
	{name: "promise", only: []string{languageGo}, steps: func(l *lane) error {
		return errors.Join(l.start("c"), l.awaitAll("c", "lead"), l.tell("c", "promise"),
			l.awaitAll("c", "promise true false"))
	}},
	{name: "leader without an agent", only: libraries, steps: func(l *lane) error {
		return errors.Join(l.launch("c", "http://127.0.0.1:1"), l.tell("c", "leader"), l.awaitAll("c", "leader error: "))
	}},
	{name: "watch yields each change", only: libraries, steps: func(l *lane) error {
		if err := errors.Join(l.launch("a", "http://"+l.cluster.Agent("a").API), l.tell("a", "watch"), leadThenWait(l),
			l.awaitAll("a", "watch c")); err != nil {
			return err
		}
		return errors.Join(l.stepDown("c"), l.awaitAll("a", "watch b"), l.stepDown("b"), l.awaitAll("a", "watch c"),
			l.tell("a", "quit"), l.awaitAll("a", "watch end"))
	}},
	{name: "watch reports that the agent is gone", only: libraries, run: func(s *scene) {
		s.each(func(l *lane) error {
			return errors.Join(l.launch("a", "http://"+l.cluster.Agent("a").API), l.tell("a", "watch"), l.start("c"),
				l.awaitAll("a", "watch c"))
		})
		s.do(s.Agent("a").Kill())
		s.each(func(l *lane) error { return l.awaitAll("a", "watch gone") })
		s.repaired(s.Agent("a").Start())
		s.each(func(l *lane) error { return l.awaitAll("a", "watch c") })
	}},
	{name: "watch of a group that doesn't exist", only: libraries, steps: func(l *lane) error {
		l.group = "nope"
		return errors.Join(l.launch("a", "http://"+l.cluster.Agent("a").API), l.tell("a", "watch"),
			l.awaitAll("a", "watch cannot watch group nope: the agent responded with status 404: "))
	}},
	{name: "health", only: []string{languagePython, languageTS}, steps: func(l *lane) error {
		return errors.Join(l.launch("a", "http://"+l.cluster.Agent("a").API), l.tell("a", "health"), l.awaitAll("a",
			"health 0"),
			l.launch("b", "http://127.0.0.1:1"), l.tell("b", "health"), l.awaitAll("b", "health error: "))
	}},
}
