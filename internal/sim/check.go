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
	// cause: something has happened that may make an election necessary.
	cause bool
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
	if e.Kind != election.Outdated && e.Kind != election.Skipped {
		w.check.agreedSince = 0
	}
	switch e.Kind {
	case election.TenureStarted:
		w.tenure(id, e.Token)
		p.running = true
		p.tenures++
	case election.TenureLost:
		w.lapsed(id)
		p.running = false
	case election.StopRequested:
		p.stopAsked, p.stopTerm = w.queue.now, e.Term
		at := w.queue.now + election.Tick(w.rng.between(1, int(drain)+4))
		w.queue.push(event{at: at, kind: stopped, who: id, slot: p.tenures})
	case election.OfficeResigned:
		asked := p.stopTerm == e.Term && p.clock.local(w.queue.now) >= p.clock.local(p.stopAsked)+drain
		if p.running && !asked {
			w.check.fail("hand-over", fmt.Sprintf("process %d resigned while its application was acting", id))
		}
		p.running = false
	case election.Started:
		if !w.check.cause {
			w.check.fail("cause", fmt.Sprintf("process %d started an election without a cause", id))
		}
	default:
	}
}

// tenure checks that the process may lead, that nobody else does, and that the
// token is new.
func (w *world) tenure(id election.ID, token election.Token) {
	for _, old := range w.check.tokens {
		if old == token || w.guarded() && old > token {
			w.check.fail("tokens", fmt.Sprintf("process %d has token %d after token %d", id, token, old))
		}
	}
	w.check.tokens = append(w.check.tokens, token)
	if p := &w.all[id]; p.withdrawn || p.roster.Priority(id) == 0 {
		w.check.fail("membership", fmt.Sprintf("process %d takes the office, which it may not", id))
	}
	if w.guarded() {
		w.alone(id)
	}
}

// alone checks that nobody holds the office but id, whose tenure has begun or
// lasts longer than it did. Strict doesn't rely on it that a process has ended,
// so what was granted to one that crashed counts, too.
func (w *world) alone(id election.ID) {
	for other := election.ID(1); other <= w.ever; other++ {
		q := &w.all[other]
		switch {
		case other != id && q.up && q.known.Token != 0 && q.clock.local(w.queue.now) < q.known.Until:
			w.check.fail("one holder", fmt.Sprintf("process %d has tenure while process %d has", id, other))
		case w.mode == office.Strict && q.clock.local(w.queue.now) < q.ghostUntil:
			w.check.fail("one holder", fmt.Sprintf("process %d has tenure while process %d, which crashed, would have", id, other))
		}
	}
}

// lapsed checks that the application hears at once that a tenure has run out,
// unless its agent stood still.
func (w *world) lapsed(id election.ID) {
	p := &w.all[id]
	if w.guarded() && w.queue.now > max(p.clock.global(p.known.Until), p.pausedUntil) {
		w.check.fail("lapse", fmt.Sprintf("process %d had tenure until %d, and says so at %d",
			id, p.known.Until, p.clock.local(w.queue.now)))
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
	if w.guarded() && s.Token != 0 && s.Until > p.known.Until {
		w.alone(id)
	}
	if p.running && s.Token == 0 {
		w.check.fail("lapse", fmt.Sprintf("the application of process %d acts, and hears of no end", id))
	}
	p.known = s
	w.overhear(id)
}

// overhear looks at what a process has just sent. Without a cause no message of
// an election is; and when all agree, there are only BEATs and the answers to
// them, and the hails of those that would take over but don't preempt.
func (w *world) overhear(id election.ID) {
	if w.check.cause && w.check.agreedSince == 0 {
		return
	}
	for i := range w.out.Send {
		m := &w.out.Send[i]
		switch {
		case m.Kind == election.Beat, m.Kind == election.Grant:
		case m.Kind == election.Probe && w.policy == office.NeverPreempt:
		default:
			w.check.agreedSince = 0
		}
		if m.Kind.Counts() && !w.check.cause {
			w.check.fail("counts", fmt.Sprintf("process %d sends %s without a cause", id, m.Kind))
		}
	}
}

// disturbs reports whether an action may make an election necessary. What
// happens to a follower doesn't, as long as all others agree and are a majority.
func (w *world) disturbs(a action) bool {
	switch a.kind {
	case crash, kill:
		if w.all[w.target(a)].known.Token != 0 {
			return true
		}
	case restart, revive, republish, healAll:
	default:
		return true
	}
	up := 0
	for _, m := range w.list.current.Ring() {
		if w.all[m.ID].up {
			up++
		}
	}
	return up <= w.list.current.Majority()
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
