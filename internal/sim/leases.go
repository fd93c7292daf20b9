package sim

import "github.com/conclave-dev/conclave/internal/election"

// longLease is the lease to which a group is changed, or from which.
const longLease = 3 * lease

// tenancy is the lease that a process goes by, and what its disk has to say of it.
type tenancy struct {
	// ticks is the lease of this life, and wanted that of the next.
	ticks, wanted election.Tick
	// promised is the longest for which it may have granted what is still in force,
	// which is over when its clock reads until.
	promised, until election.Tick
}

// lease begins the next life of p with the lease that is wanted.
func (w *world) lease(p *process) {
	t := &p.lease
	if p.clock.local(p.downSince) >= t.until { // It saw the longer one end.
		t.promised = t.ticks
	}
	if t.wanted == 0 {
		t.wanted = w.plan.after
	}
	t.ticks = t.wanted
	t.promised = max(t.promised, t.ticks)
	t.until = p.clock.local(w.queue.now) + t.promised
}

// leaseAndMore is longer than any lease of the plan on any clock.
func (p *plan) leaseAndMore() election.Tick {
	longest := max(p.before, p.after)
	return longest + longest/8
}

// drawLeases has some schedules change the lease, with one process restarted after
// the other. It returns when the last one is, or at, if that is later.
func (p *plan) drawLeases(w *world, at election.Tick) election.Tick {
	r := &w.rng
	if !r.percent(6) {
		p.faults &^= Leases
		return at
	}
	if r.percent(70) {
		p.before = longLease
	} else {
		p.after = longLease
	}
	order := make([]election.ID, w.processes)
	for i := range order {
		j := r.below(i + 1)
		order[i], order[j] = order[j], election.ID(i+1)
	}
	next, pace := election.Tick(r.below(int(at))), r.between(2, int(3*lease))
	for _, id := range order {
		next += election.Tick(r.between(1, pace))
		p.push(w, action{
			at: next, kind: relet, target: id, lasts: election.Tick(r.below(int(heartbeat))), silent: r.percent(30),
		})
	}
	return max(at, next)
}

// relet ends a process, if it lives, and starts it with the new lease.
func (w *world) relet(id election.ID, a action) {
	w.all[id].lease.wanted = w.plan.after
	w.announce(id, "is restarted with a lease of %d", w.plan.after)
	w.crash(id, a)
	w.plan.push(w, action{at: w.queue.now + a.lasts + 1, kind: restart, target: id})
}

// reletLate ends a process that still goes by the old lease when all must agree.
func (w *world) reletLate(id election.ID) {
	p := &w.all[id]
	p.lease.wanted = w.plan.after
	if p.up && p.lease.ticks != w.plan.after {
		w.crash(id, action{})
	}
}
