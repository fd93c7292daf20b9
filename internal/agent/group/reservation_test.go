package group

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// storing lets a member reserve its terms in a state directory, and checks each grant.
type storing struct {
	t      *testing.T
	store  *state.Store
	checks atomic.Int64
}

// newStoring returns the state directory of a member, whose disk answers from when answer is closed.
func newStoring(t *testing.T, cfg *Config, answer chan struct{}) *storing {
	t.Helper()
	store, err := state.Open(t.TempDir())
	must.Succeed(t, err)
	t.Cleanup(func() { store.Close() })
	list := cfg.Group.List
	must.Succeed(t, store.Save("ledger", state.Record{List: &list}))
	s := &storing{t: t, store: store}
	cfg.Reserved = s.onDisk()
	cfg.Reserve = func(reserved election.Term, version uint32, peers map[string]election.Identity) error {
		<-answer
		return store.Reserve(state.Key{Group: "ledger"}, reserved, version, peers)
	}
	promised(t, cfg, s.check)
	return s
}

func (s *storing) onDisk() election.Term {
	record, err := s.store.Load("ledger")
	expect.Succeed(s.t, err)
	return record.Reserved
}

func (s *storing) check(holder string, term election.Term) {
	if reserved := s.onDisk(); term > reserved {
		s.t.Errorf("got a grant for %s in term %d, and the disk has a reservation up to %d", holder, term, reserved)
	}
	s.checks.Add(1)
}

// handOver makes the coordinators hand the office over, from one to the next.
func (c *cluster) handOver(times int) {
	c.t.Helper()
	for i := range times {
		from, to := "bc"[i%2:][:1], "cb"[i%2:][:1]
		c.handOverTo(from, to)
	}
}

// handOverTo retries until the coordinator has handed the office over, to any member if to is empty.
func (c *cluster) handOverTo(to, coordinator string) {
	c.t.Helper()
	testwait.NoError(c.t, func() error { return c.group(coordinator).stepDownTo(to)(testwait.Context(c.t)) })
}

// TestGrantsAreReserved: whatever a member has granted when its machine stops, the disk has a bound on it, also while
// blocks of terms are used up.
func TestGrantsAreReserved(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		var disks []*storing
		answer := make(chan struct{})
		c := newTunedCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(cfg *Config) {
			disks = append(disks, newStoring(t, cfg, answer))
		}, func(g *config.Group) {
			g.Preemption.Policy, g.Timing.DrainTimeout = office.NeverPreempt, time.Second
		})
		c.awaitFollowers("c", "a", "b", "c")
		c.handOver(int(election.Block) - 4)
		for range 8 { // The last ones need terms that aren't on the disk.
			if l := c.group("a").Leader(); l.Coordinator != "" {
				_, _ = c.group(l.Coordinator).StepDown(testwait.Context(t), "")
			}
			time.Sleep(testLease)
		}
		c.group("a").Leave(testwait.Context(t), control.EndStopped) // It doesn't wait for its disk.
		close(answer)
		last := waitFor(t, c.group("b"), "there is a coordinator", func(l Leader) bool { return l.Coordinator != "" })
		c.handOverTo("", last.Coordinator)
		for _, d := range disks[1:] {
			if reserved, first := d.onDisk(), election.FirstTerm(1)+election.Block; reserved <= first {
				t.Errorf("got terms up to %d reserved, want more than the first block up to %d", reserved, first)
			}
			expect.AtLeastf(t, d.checks.Load(), int64(election.Block)/2, "grants and tenures that were checked")
		}
	})
}

// TestDiskThatFailsIsAProblemWhenNoTermsAreLeft: until then the members elect. When the disks work again, elections go
// on.
func TestDiskThatFailsIsAProblemWhenNoTermsAreLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		log := &testwait.Log{}
		c := newTunedCluster(t, map[string]int{"a": 10, "b": 20, "c": 30},
			func(cfg *Config) { cfg.Log = log.Logger() }, func(g *config.Group) {
				g.Preemption.Policy, g.Timing.DrainTimeout = office.NeverPreempt, time.Second
			})
		fail := func(failure error) {
			for _, d := range c.disks {
				d.mu.Lock()
				d.failure = failure
				d.mu.Unlock()
			}
		}
		c.awaitFollowers("c", "a", "b", "c")
		fail(errors.New("no space left"))
		c.handOver(int(election.Block)/2 + 2)
		const logged = "cannot reserve terms; retrying"
		testwait.Until(t, "each member has logged its disk", func() bool { return log.Count(logged) == 3 })
		own := func() []string {
			problems, _ := c.group("a").Problems()
			return problems
		}
		expect.Lenf(t, own(), 0, "problems while terms are left")
		testwait.Until(t, "a has no terms left", func() bool {
			if l := c.group("a").Leader(); l.Coordinator != "" {
				_, _ = c.group(l.Coordinator).StepDown(testwait.Context(t), "") // The last ones fail.
			}
			return len(own()) > 0
		})
		expect.EqualSlicesf(t, own(), []string{"group ledger: cannot reserve terms: no space left"}, "problems")
		time.Sleep(time.Minute)
		expect.Equalf(t, log.Count(logged), 3, "lines in the log")
		fail(nil)
		testwait.Until(t, "a has no problem", func() bool { return len(own()) == 0 })
		last := waitFor(t, c.group("a"), "there is a coordinator", func(l Leader) bool { return l.Coordinator != "" })
		c.handOverTo("", last.Coordinator)
	})
}
