package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// agreed returns the leader of a group on which all candidates but one agree, and when the last one knew it. The leader
// must itself say that it leads. except is -1 if all count.
func (s *set) agreed(group, except int) (leader int, at int64, ok bool) {
	leader = -1
	for i, c := range s.candidates {
		if i == except {
			continue
		}
		known, heard := c.knows[group]
		if !heard || known.leader < 0 || known.leader == except || leader >= 0 && known.leader != leader {
			return -1, 0, false
		}
		leader, at = known.leader, max(at, known.at)
	}
	if s.of.unclaimed {
		return leader, at, true
	}
	since, leads := s.candidates[leader].leads[group]
	return leader, max(at, since), leads
}

// settle returns the leader when all candidates agree on it in each group, and nobody else says that it leads.
func (s *set) settle(ctx context.Context) (leader int, err error) {
	err = s.await(ctx, settleLimit, func() bool {
		for group := range s.specs[0].Groups {
			agreed, _, ok := s.agreed(group, -1)
			if !ok {
				return false
			}
			for i, c := range s.candidates {
				if _, leads := c.leads[group]; leads && i != agreed {
					return false
				}
			}
			if group == 0 {
				leader = agreed
			}
		}
		return true
	})
	return leader, err
}

// outcome is the result of a round.
type outcome struct {
	took time.Duration
	// late: the survivors didn't agree in time.
	late bool
	// two is how long two candidates at once said that they lead.
	two time.Duration
}

// frozenFor is how long a frozen or silent leader remains so after all survivors know the next one.
const frozenFor = 200 * time.Millisecond

// round lets a fault hit all processes of the leader, and returns when all candidates agree again.
func (s *set) round(ctx context.Context, f fault) (outcome, error) {
	if f.silent() {
		if err := benchmark.Wait(ctx, s.of.memory); err != nil {
			return outcome{}, err
		}
	}
	leader, err := s.calm(ctx)
	if err != nil {
		return outcome{}, err
	}
	victim := s.candidates[leader]
	s.mutex.Lock()
	victim.expected = !f.silent()
	s.mutex.Unlock()
	began := monotonic()
	if f.name == silentFault {
		err = s.env.silence(ctx, "add", s.specs[leader].host())
	} else {
		err = syscall.Kill(-victim.command.Process.Pid, f.signal)
	}
	if err != nil {
		return outcome{}, err
	}
	if f.signal == syscall.SIGKILL {
		s.mutex.Lock()
		s.endClaim(leader, victim, began)
		s.mutex.Unlock()
	}
	var known int64
	err = s.await(ctx, s.of.limit, func() (ok bool) {
		_, known, ok = s.agreed(0, leader)
		return ok
	})
	result := outcome{took: time.Duration(known - began)}
	if errors.Is(err, errLate) {
		result = outcome{late: true}
	} else if err != nil {
		return result, err
	}
	frozen, err := s.endFault(ctx, f, leader, began)
	if err != nil {
		return result, err
	}
	if _, err := s.settle(ctx); err != nil {
		return result, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	result.two = overlap(s.closedClaims(began), frozen)
	return result, nil
}

// endFault starts the former leader again, or ends its silence. It returns the time for which that process was frozen.
func (s *set) endFault(ctx context.Context, f fault, leader int, began int64) (claim, error) {
	frozen, victim := claim{index: leader}, s.candidates[leader]
	if !f.silent() {
		if err := s.await(ctx, settleLimit, func() bool { return victim.ended }); err != nil {
			return frozen, err
		}
		return frozen, s.start(leader)
	}
	if err := benchmark.Wait(ctx, frozenFor); err != nil {
		return frozen, err
	}
	if f.name == silentFault {
		return frozen, s.env.silence(ctx, "delete", s.specs[leader].host())
	}
	frozen.from, frozen.to = began, monotonic()
	return frozen, syscall.Kill(-victim.command.Process.Pid, syscall.SIGCONT)
}

// calm returns the leader at a random moment between two renewals, with all candidates in agreement.
func (s *set) calm(ctx context.Context) (int, error) {
	for {
		before, err := s.settle(ctx)
		if err != nil {
			return 0, err
		}
		if err := benchmark.Wait(ctx, s.of.rest+rand.N(s.of.period+time.Millisecond)); err != nil {
			return 0, err
		}
		if leader, err := s.settle(ctx); err != nil || leader == before {
			return leader, err
		}
	}
}

// closedClaims returns the claims that lasted beyond a time, including those that still last.
func (s *set) closedClaims(after int64) []claim {
	claims := slices.Clone(s.claims)
	for i, c := range s.candidates {
		if from, leads := c.leads[0]; leads {
			claims = append(claims, claim{i, from, monotonic()})
		}
	}
	return slices.DeleteFunc(claims, func(c claim) bool { return c.to < after })
}

// overlap returns how long candidates said at once that they lead. While a candidate is frozen, it says nothing.
func overlap(claims []claim, frozen claim) time.Duration {
	var sum int64
	for i, a := range claims {
		for _, b := range claims[:i] {
			from, to := max(a.from, b.from), min(a.to, b.to)
			if a.index == b.index || to <= from {
				continue
			}
			sum += to - from
			if frozen.index == a.index || frozen.index == b.index {
				sum -= max(0, min(to, frozen.to)-max(from, frozen.from))
			}
		}
	}
	return time.Duration(sum)
}

// stop kills all candidates.
func (s *set) stop() {
	for _, c := range s.candidates {
		if c == nil {
			continue
		}
		s.mutex.Lock()
		c.expected = true
		s.mutex.Unlock()
		_ = syscall.Kill(-c.command.Process.Pid, syscall.SIGKILL) // It may have ended.
	}
	_ = s.await(context.Background(), settleLimit, func() bool {
		return !slices.ContainsFunc(s.candidates, func(c *candidate) bool { return c != nil && !c.ended })
	})
	_ = s.close() // The agents are children of candidates.
}
