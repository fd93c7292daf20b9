package sim

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// Violation is a schedule in which something that must hold didn't.
type Violation struct {
	Seed      uint64
	Invariant string
	Detail    string
}

// checker holds what has to be remembered to check the invariants.
type checker struct {
	violation *Violation
	done      bool
	tokens    []election.Token
	// leaders are, for each term, whom processes named as coordinator.
	leaders []named
	// quietSince is when the last thing happened that has to stop.
	quietSince election.Tick
	// agreedSince is when all were found to agree, 0 when they didn't.
	agreedSince election.Tick
}

type named struct {
	term   election.Term
	leader election.ID
}

func (c *checker) reset() { *c = checker{tokens: c.tokens[:0], leaders: c.leaders[:0]} }

func (c *checker) fail(invariant, detail string) {
	if c.violation == nil {
		c.violation = &Violation{Invariant: invariant, Detail: detail}
	}
}

// guarded reports whether tenure needs grants.
func (w *world) guarded() bool { return w.mode != office.Available }

// observe checks an event, and lets the application react to it.
func (w *world) observe(id election.ID, e *election.Event) {
	p := &w.all[id]
	w.mix(uint64(id)<<8 | uint64(e.Kind)<<40)
	if w.queue.now >= w.plan.healAt && e.Kind != election.Outdated && e.Kind != election.Skipped {
		w.check.quietSince = w.queue.now
		w.check.agreedSince = 0
	}
	switch e.Kind {
	case election.Tenure:
		w.tenure(id, e.Token)
		p.running = true
		p.tenures++
	case election.Lost:
		p.running = false
	case election.Stop:
		p.stopAsked, p.stopTerm = w.queue.now, e.Term
		at := w.queue.now + election.Tick(w.rng.between(1, int(drain)+4))
		w.queue.push(event{at: at, kind: stopped, who: id, slot: p.tenures})
	case election.Resigns:
		asked := p.clock.local(p.stopAsked) + drain
		if p.running && p.clock.local(w.queue.now) < asked {
			w.check.fail("hand-over", fmt.Sprintf("process %d resigned while its application was acting", id))
		}
		p.running = false
	case election.Started:
		if w.plan.faults == 0 {
			w.check.fail("cause", fmt.Sprintf("process %d started an election without a cause", id))
		}
	default:
	}
}

// tenure checks that nobody else holds the office, and that the token is new.
func (w *world) tenure(id election.ID, token election.Token) {
	for _, old := range w.check.tokens {
		if old == token || w.guarded() && old > token {
			w.check.fail("tokens", fmt.Sprintf("process %d has token %d after token %d", id, token, old))
		}
	}
	w.check.tokens = append(w.check.tokens, token)
	if !w.guarded() {
		return
	}
	for other := election.ID(1); other <= w.ever; other++ {
		q := &w.all[other]
		if other == id || !q.up {
			continue
		}
		if s := q.machine.Status(); s.Token != 0 && q.clock.local(w.queue.now) < s.Until {
			w.check.fail("one holder", fmt.Sprintf("process %d has tenure while process %d has", id, other))
		}
	}
}

// verify checks a process's status after a step.
func (w *world) verify(id election.ID) {
	p := &w.all[id]
	s := p.machine.Status()
	if s.Term < p.known.Term {
		w.check.fail("terms", fmt.Sprintf("the term of process %d went from %d to %d", id, p.known.Term, s.Term))
	}
	if s.Coordinator != election.None && (s.Coordinator != p.known.Coordinator || s.Term != p.known.Term) {
		w.recognised(id, s)
	}
	p.known = s
}

func (w *world) recognised(id election.ID, s election.Status) {
	p := &w.all[id]
	before := p.roster.Previous // a coordinator that was removed leads until it has resigned
	if p.roster.Priority(s.Coordinator) == 0 && (before == nil || before.Priority(s.Coordinator) == 0) {
		w.check.fail("membership", fmt.Sprintf("process %d follows %d, which may not stand", id, s.Coordinator))
	}
	if !w.guarded() {
		return
	}
	for _, n := range w.check.leaders {
		if n.term != s.Term {
			continue
		}
		if n.leader != s.Coordinator {
			w.check.fail("one coordinator for a term",
				fmt.Sprintf("in term %d process %d follows %d, another %d", s.Term, id, s.Coordinator, n.leader))
		}
		return
	}
	w.check.leaders = append(w.check.leaders, named{s.Term, s.Coordinator})
}

// lookAround ends the schedule when all agree and nothing has happened for a
// while.
func (w *world) lookAround() {
	if w.disagreement() != "" {
		w.check.agreedSince = 0
		return
	}
	now := w.queue.now
	if w.check.agreedSince == 0 {
		w.check.agreedSince = now
	}
	w.check.done = now >= w.check.agreedSince+w.plan.quietFor
}

// disagreement says what is missing for all to agree on the highest live
// process, or nothing.
func (w *world) disagreement() string {
	roster := w.list.current
	best := election.None
	for _, m := range roster.Ranked() {
		p := &w.all[m.ID]
		if m.Priority > 0 && p.up && !p.withdrawn {
			best = m.ID
			break
		}
	}
	if w.policy == office.NeverPreempt {
		for _, m := range roster.Ring() {
			if p := &w.all[m.ID]; p.up && p.known.Token != 0 {
				best = m.ID
			}
		}
	}
	for _, m := range roster.Ring() {
		p := &w.all[m.ID]
		switch {
		case !p.up:
		case p.known.Coordinator != best:
			return fmt.Sprintf("process %d follows %d, not %d, the highest that lives", m.ID, p.known.Coordinator, best)
		case m.ID == best && (p.known.Token == 0 || !p.running):
			return fmt.Sprintf("process %d is followed and has no tenure", best)
		case p.roster.Version != roster.Version:
			return fmt.Sprintf("process %d has not adopted version %d", m.ID, roster.Version)
		}
	}
	return ""
}
