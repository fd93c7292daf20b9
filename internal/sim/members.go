package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// memberList is the operator's side of the member list: it publishes one version
// after the other, each when the one before has settled.
type memberList struct {
	current *election.Roster
	// published are all lists that were sent out, a list again when more of the
	// members before it have departed.
	published []*election.Roster
}

// levels are the places that a process can have in the ranking.
const levels = 30

// settled reports whether a majority of the list before the current one has
// gone over to it, and nothing that was granted under the old one is in force.
func (l *memberList) settled(w *world) bool {
	previous := l.current.Previous
	if previous == nil {
		return true
	}
	count := 0
	for _, m := range previous.Ring() {
		p := &w.all[m.ID]
		adopted := p.roster.Version >= l.current.Version && w.queue.now >= p.adoptedAt+w.plan.leaseAndMore()
		gone := p.buried && !p.up && w.queue.now >= p.downSince+w.plan.leaseAndMore()
		if adopted || gone {
			count++
		}
	}
	return count >= previous.Majority()
}

// changeMembers publishes another member list, now or when the last has settled.
func (w *world) changeMembers(a action) {
	if w.queue.now >= w.plan.healAt {
		return
	}
	if !w.list.settled(w) {
		a.at = w.queue.now + heartbeat
		w.plan.push(w, a)
		return
	}
	ring, joining := w.drawMembers()
	next, err := election.NewRoster(w.list.current.Version+1, ring)
	if err != nil {
		return // the draw left nobody to elect; that list would be refused
	}
	floor := firstReading + election.Term(w.queue.now/w.plan.termTicks)
	next = next.Succeed(w.list.current, floor)
	w.list.current = next
	w.announce(election.None, "member list %d is published: %v", next.Version, ring)
	for _, id := range joining {
		w.ever = max(w.ever, id)
		p := &w.all[id]
		p.exists, p.clock, p.roster, p.adoptedAt = true, w.plan.clock(w), next, w.queue.now
		w.plan.push(w, action{at: w.queue.now + election.Tick(w.rng.below(int(lease))), kind: restart, target: id})
	}
	w.publish()
	for _, m := range next.Previous.Ring() {
		if p := &w.all[m.ID]; !p.up && !next.Has(m.ID) {
			w.bury(p)
		}
	}
}

// drawMembers makes the next list: it grows, shrinks, is replaced in part, or
// renumbered.
func (w *world) drawMembers() (ring []election.Member, joining []election.ID) {
	ring = append(ring, w.list.current.Ring()...)
	r := &w.rng
	grow, shrink := 0, 0
	switch r.below(4) {
	case 0:
		grow = r.between(1, 2)
	case 1:
		shrink = r.between(1, max(1, len(ring)-2))
	case 2:
		grow = r.between(1, len(ring))
		shrink = grow
	default:
		a, b := r.below(len(ring)), r.below(len(ring))
		if r.percent(30) {
			ring[a].Priority = 0
		} else if w.guarded() {
			ring[a].Priority, ring[b].Priority = ring[b].Priority, ring[a].Priority
		} else { // see priority
			ring[a].Priority = priority(ring[a].ID, r.below(levels))
		}
	}
	for ; shrink > 0 && len(ring) > 1; shrink-- {
		i := r.below(len(ring))
		ring = append(ring[:i], ring[i+1:]...)
	}
	next := w.ever
	for ; grow > 0 && next < maxMembers; grow-- {
		next++
		joining = append(joining, next)
		ring = append(ring, election.Member{ID: next, Priority: w.drawPriority(next)})
	}
	return ring, joining
}

// drawPriority draws the priority of a process that joins: some never stand.
func (w *world) drawPriority(id election.ID) election.Priority {
	if w.rng.percent(15) {
		return 0
	}
	return priority(id, w.rng.below(levels))
}

// bury notes that a process never comes back; the list says so as soon as what
// it granted has run out.
func (w *world) bury(p *process) {
	p.buried = true
	at := max(w.queue.now, p.downSince+w.plan.leaseAndMore())
	w.plan.push(w, action{at: at, kind: republish})
}

// publish sends the current list out, with the members of the old one that are
// known to be gone.
func (w *world) publish() {
	l := &w.list
	var departed []election.ID
	if l.current.Previous != nil {
		for _, m := range l.current.Previous.Ring() {
			if p := &w.all[m.ID]; p.buried && w.queue.now >= p.downSince+w.plan.leaseAndMore() {
				departed = append(departed, m.ID)
			}
		}
		l.current = l.current.Succeed(l.current.Previous, l.current.Floor, departed...)
	}
	l.published = append(l.published, l.current)
	slot := uint32(len(l.published) - 1)
	for id := election.ID(1); id <= w.ever; id++ {
		if p := &w.all[id]; p.up {
			at := w.queue.now + election.Tick(w.rng.below(int(patience)))
			w.queue.push(event{at: at, kind: adopted, who: id, slot: slot})
		}
	}
}

// catchUp gives a process that boots the newest list: it reads what the API
// server has. A list that names it is always among those published.
func (w *world) catchUp(p *process) { w.goBy(p, w.list.current) }

// goBy has a process go by a list from now on, if it didn't before.
func (w *world) goBy(p *process, roster *election.Roster) {
	if roster.Version > p.roster.Version {
		p.adoptedAt = w.queue.now
	}
	p.roster = roster
}

// adopt lets a process take over a list.
func (w *world) adopt(id election.ID, roster *election.Roster) {
	p := &w.all[id]
	if roster.Version < p.roster.Version {
		return
	}
	w.goBy(p, roster)
	w.step(id, election.Input{Kind: election.Adopt, Roster: roster})
	if !roster.Has(id) && w.mode != office.Available && w.rng.percent(50) {
		w.plan.push(w, action{at: w.queue.now + election.Tick(w.rng.below(int(lease))), kind: crash, target: id})
	}
}
