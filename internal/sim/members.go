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
const maxLevel = 30

// settled reports whether a majority of the list before the current one has
// gone over to it, and nothing that was granted under the old one is in force.
func (l *memberList) settled(s *simulation) bool {
	previous := l.current.Previous
	if previous == nil {
		return true
	}
	count := 0
	for _, m := range previous.Ring() {
		p := &s.processes[m.ID]
		adopted := p.roster.Version >= l.current.Version && s.queue.now >= p.adoptedAt+s.schedule.maxLease()
		gone := p.removed && !p.up && s.queue.now >= p.downSince+s.schedule.maxLease()
		if adopted || gone {
			count++
		}
	}
	return count >= previous.Majority()
}

// changeMembers publishes another member list, now or when the last has settled.
func (s *simulation) changeMembers(a action) {
	if s.queue.now >= s.schedule.healAt {
		return
	}
	if !s.members.settled(s) {
		a.at = s.queue.now + heartbeat
		s.schedule.push(s, a)
		return
	}
	ring, joining := s.drawMembers()
	next, err := election.NewRoster(s.members.current.Version+1, ring)
	if err != nil {
		return // the draw left nobody to elect; that list would be refused
	}
	floor := initialWallClock + election.Term(s.queue.now/s.schedule.termTicks)
	next = next.Succeed(s.members.current, floor)
	s.members.current = next
	s.reportFault(election.None, "member list %d is published: %v", next.Version, ring)
	for _, id := range joining {
		s.maxID = max(s.maxID, id)
		p := &s.processes[id]
		p.exists, p.clock, p.roster, p.adoptedAt = true, s.schedule.drawClock(s), next, s.queue.now
		s.schedule.push(s, action{at: s.queue.now + election.Tick(s.rng.below(int(lease))), kind: actRestart, target: id})
	}
	s.publish()
	for _, m := range next.Previous.Ring() {
		if p := &s.processes[m.ID]; !p.up && !next.Has(m.ID) {
			s.markRemoved(p)
		}
	}
}

// drawMembers makes the next list: it grows, shrinks, is replaced in part, or
// renumbered.
func (s *simulation) drawMembers() (ring []election.Member, joining []election.ID) {
	ring = append(ring, s.members.current.Ring()...)
	r := &s.rng
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
		} else if s.usesGrants() {
			ring[a].Priority, ring[b].Priority = ring[b].Priority, ring[a].Priority
		} else { // see priority
			ring[a].Priority = priority(ring[a].ID, r.below(maxLevel))
		}
	}
	for ; shrink > 0 && len(ring) > 1; shrink-- {
		i := r.below(len(ring))
		ring = append(ring[:i], ring[i+1:]...)
	}
	next := s.maxID
	for ; grow > 0 && next < maxMembers; grow-- {
		next++
		joining = append(joining, next)
		ring = append(ring, election.Member{ID: next, Priority: s.drawPriority(next)})
	}
	return ring, joining
}

// drawPriority draws the priority of a process that joins: some never stand.
func (s *simulation) drawPriority(id election.ID) election.Priority {
	if s.rng.percent(15) {
		return 0
	}
	return priority(id, s.rng.below(maxLevel))
}

// bury notes that a process never comes back; the list says so as soon as what
// it granted has run out.
func (s *simulation) markRemoved(p *process) {
	p.removed = true
	at := max(s.queue.now, p.downSince+s.schedule.maxLease())
	s.schedule.push(s, action{at: at, kind: actRepublish})
}

// publish sends the current list out, with the members of the old one that are
// known to be gone.
func (s *simulation) publish() {
	l := &s.members
	var departed []election.ID
	if l.current.Previous != nil {
		for _, m := range l.current.Previous.Ring() {
			if p := &s.processes[m.ID]; p.removed && s.queue.now >= p.downSince+s.schedule.maxLease() {
				departed = append(departed, m.ID)
			}
		}
		l.current = l.current.Succeed(l.current.Previous, l.current.Floor, departed...)
	}
	l.published = append(l.published, l.current)
	slot := uint32(len(l.published) - 1)
	for id := election.ID(1); id <= s.maxID; id++ {
		if p := &s.processes[id]; p.up {
			at := s.queue.now + election.Tick(s.rng.below(int(patience)))
			s.queue.push(event{at: at, kind: eventRoster, process: id, slot: slot})
		}
	}
}

// adoptLatest gives a process that boots the newest list: it reads what the API
// server has. A list that names it is always among those published.
func (s *simulation) adoptLatest(p *process) { s.setRoster(p, s.members.current) }

// setRoster has a process go by a list from now on, if it didn't before.
func (s *simulation) setRoster(p *process, roster *election.Roster) {
	if roster.Version > p.roster.Version {
		p.adoptedAt = s.queue.now
	}
	p.roster = roster
}

// adopt lets a process take over a list.
func (s *simulation) adopt(id election.ID, roster *election.Roster) {
	p := &s.processes[id]
	if roster.Version < p.roster.Version {
		return
	}
	s.setRoster(p, roster)
	s.step(id, election.Input{Kind: election.Adopt, Roster: roster})
	if !roster.Has(id) && s.mode != office.Available && s.rng.percent(50) {
		s.schedule.push(s, action{at: s.queue.now + election.Tick(s.rng.below(int(lease))), kind: actCrash, target: id})
	}
}
