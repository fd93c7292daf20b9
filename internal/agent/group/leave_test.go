package group

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

func TestStepDown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30, "witness": 0}, func(g *config.Group) {
			g.Preemption.Stable = time.Minute // A process that stepped down remains ineligible.
		})
		waitFor(t, cluster.group("c"), "c leads", isLeading)
		cluster.awaitFollowers("c", "a", "b")
		if _, err := cluster.group("b").StepDown(testwait.Context(t), ""); !errors.Is(err, ErrNotLeading) {
			t.Errorf("step down of a follower: got %v, want %v", err, ErrNotLeading)
		}
		if _, err := cluster.group("c").StepDown(testwait.Context(t), "unknown"); !errors.Is(err, ErrNoSuccessor) {
			t.Errorf("step down in favor of an unknown member: got %v, want %v", err, ErrNoSuccessor)
		}
		_, err := cluster.group("c").StepDown(testwait.Context(t), "witness")
		if want := "witness is not ready to take over"; !errors.Is(err, ErrNoSuccessor) || err.Error() != want {
			t.Errorf("step down in favor of a witness: got %v, want %s", err, want)
		}
		var l Leader
		err = retryStepDown(testwait.Context(t), func(ctx context.Context) (err error) {
			l, err = cluster.group("c").StepDown(ctx, "a")
			return err
		})
		if err != nil || l.Coordinator != "a" && l.Coordinator != "b" {
			t.Errorf("step down of c: got %+v, %v, want coordinator a or b", l, err)
		}
	})
}

func TestLeaveHandsOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil)
		waitFor(t, cluster.group("c"), "c leads", isLeading)
		cluster.awaitFollowers("c", "a", "b")
		c := cluster.group("c")
		w := c.Watch()
		c.Leave(testwait.Context(t), control.EndStopped)
		waitFor(t, cluster.group("b"), "b leads", isLeading)
		for {
			if _, err := w.Next(testwait.Context(t)); errors.Is(err, ErrClosed) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.OpenSession(testwait.Context(t), false); !errors.Is(err, ErrClosed) {
			t.Errorf("session in a group that was left: got %v, want %v", err, ErrClosed)
		}
		if _, err := c.Status(testwait.Context(t)); !errors.Is(err, ErrClosed) {
			t.Errorf("status of a group that was left: got %v, want %v", err, ErrClosed)
		}
	})
}

// TestLeaveWaitsForApplication: also without a possible successor, and if the application was asked to stop before.
func TestLeaveWaitsForApplication(t *testing.T) {
	t.Parallel()
	for name, priorities := range map[string]map[string]int{
		"no possible successor": {"a": 10},
		"a hand-over has begun": {"a": 10, "b": 20, "c": 30},
		"a new hand-over":       {"a": 30, "b": 20, "c": 10},
	} {
		runInVirtualTime(t, name, func(t *testing.T) {
			cluster := newCluster(t, priorities, func(g *config.Group) {
				g.Session = len(priorities) > 1
				g.Safety.Lease = 3 * time.Second // It must not expire while the application stops.
			})
			a := cluster.group("a")
			s := openSession(t, a)
			lead := nextEvent(t, s, Lead)
			if b := cluster.group("b"); b != nil {
				// Otherwise it might be elected itself.
				waitFor(t, b, "it follows a", func(l Leader) bool { return l.Coordinator == "a" })
				openSession(t, b)
			}
			if name == "a hand-over has begun" {
				nextEvent(t, s, Stop)
			}
			left := make(chan struct{})
			go func() {
				a.Leave(testwait.Context(t), control.EndStopped)
				close(left)
			}()
			if name != "a hand-over has begun" {
				nextEvent(t, s, Stop)
			}
			must.Succeed(t, a.AwaitRoundTrip(testwait.Context(t)))
			if l := a.Leader(); l.Leading || l.Coordinator != "a" {
				t.Errorf("while the application of a stops: got %+v, want coordinator a, not leading", l)
			}
			expect.Succeed(t, a.ConfirmStopped(testwait.Context(t), s.ID(), lead.Term))
			<-left
		})
	}
}

// TestLeavingProcessDoesNotLeadAgain: the lease may expire while the application stops.
// Without another eligible member, this process would be elected again.
func TestLeavingProcessDoesNotLeadAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		a := newCluster(t, map[string]int{"a": 10}, nil).group("a")
		s := openSession(t, a)
		nextEvent(t, s, Lead)
		left := make(chan struct{})
		ctx := testwait.Context(t)
		go func() {
			a.Leave(ctx, control.EndStopped)
			close(left)
		}()
		nextEvent(t, s, Stop)
		expireLease(t, a)
		nextEvent(t, s, Lost)
		if e, err := s.Next(testwait.Context(t)); !errors.Is(err, ErrClosed) {
			t.Errorf("while the agent leaves: got event %+v, %v, want %v", e, err, ErrClosed)
		}
		<-left
		if ctx.Err() != nil {
			t.Error("Leave waited for an application that had lost the office")
		}
	})
}

// TestAwaitReplacement: of two pods, one that is deleted votes until the list without it has settled.
func TestAwaitReplacement(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newTunedCluster(t, map[string]int{"a": 10, "b": 20}, func(c *Config) { c.OnReport = (&reportLog{}).add })
		cluster.awaitFollowers("b", "a", "b")
		a, b := cluster.group("a"), cluster.group("b")
		takes := func(atLeast, below time.Duration, what string) {
			t.Helper()
			start := time.Now()
			b.AwaitReplacement(testwait.Context(t))
			if took := time.Since(start); took < atLeast || took >= below {
				t.Errorf("%s: got a wait of %s, want from %s to %s", what, took, atLeast, below)
			}
		}
		takes(exclusionMax, exclusionMax+testLease/4, "no operator")
		must.Succeed(t, retryStepDown(testwait.Context(t), b.Exclude))
		takes(4*time.Second+testLease, 5*time.Second+testLease, "no list without b")
		next := a.cfg.Group
		next.List = memberlist.List{Version: 2, Members: next.List.Members[:1], Previous: next.List.Bare()}
		go func() {
			time.Sleep(testLease)
			expect.Succeed(t, errors.Join(a.Use(testwait.Context(t), next), b.Use(testwait.Context(t), next)))
		}()
		takes(testLease, 3*testLease, "a list without b")
		settled := func() { expect.Equalf(t, b.machine.ReportsList(), true, "b reports the list without it") }
		must.Succeed(t, b.call(testwait.Context(t), settled))
	})
}
