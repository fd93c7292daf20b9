package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// memberList is the operator's part: it publishes one version of the member list
// after another, each when the previous one has settled.
type memberList struct {
	current *election.Roster
	// published has all published lists. A list is published again when another
	// member of the previous one has departed.
	published []*election.Roster
}

// maxLevel bounds the levels from which priorities are drawn.
const maxLevel = 30

// settled reports whether a majority of the previous list has adopted the current
// one, or is removed, for so long that none of its grants under the previous list
// is still in force.
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

// changeMembers publishes a new member list, once the current one has settled.
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
		return // no member has a positive priority: the API refuses such a list
	}
	next = next.Succeed(s.members.current, s.floor())
	s.coverAll(Members)
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

// floor returns the floor of a list that is published now: the next one according to the
// operator's clock, or a higher term that an agent has reported.
func (s *simulation) floor() election.Term {
	floor := election.NextFloor(s.members.current.Floor, initialWallClock+election.Term(s.queue.now/s.schedule.termTicks))
	for id := election.ID(1); id <= s.maxID; id++ {
		if p := &s.processes[id]; p.up {
			floor = max(floor, p.status.Term)
		}
	}
	return floor
}

// drawMembers draws the next list: it grows, shrinks, is replaced in part, or its
// priorities change.
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
		} else { // without grants, tokens need distinct priorities: see priority
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

// drawPriority draws the priority of a process that joins. A priority of 0 makes
// it ineligible.
func (s *simulation) drawPriority(id election.ID) election.Priority {
	if s.rng.percent(15) {
		return 0
	}
	return priority(id, s.rng.below(maxLevel))
}

// markRemoved records that a process never restarts. It is published as departed
// once its grants have expired.
func (s *simulation) markRemoved(p *process) {
	p.removed = true
	at := max(s.queue.now, p.downSince+s.schedule.maxLease())
	s.schedule.push(s, action{at: at, kind: actRepublish})
}

// publish publishes the current list, with the departed members of the previous
// one, to all processes that are up.
func (s *simulation) publish() {
	l := &s.members
	var departed []election.ID
	if l.current.Previous != nil {
		for _, m := range l.current.Previous.Ring() {
			if p := &s.processes[m.ID]; p.removed && s.queue.now >= p.downSince+s.schedule.maxLease() {
				departed = append(departed, m.ID)
			}
		}
		floor := l.current.Floor
		if len(departed) > len(l.current.Departed) {
			floor = s.floor()
		}
		l.current = l.current.Succeed(l.current.Previous, floor, departed...)
	}
	l.published = append(l.published, l.current)
	slot := uint32(len(l.published) - 1)
	for id := election.ID(1); id <= s.maxID; id++ {
		if p := &s.processes[id]; p.up {
			at := s.queue.now + election.Tick(s.rng.below(int(suspicionTimeout)))
			s.queue.push(event{at: at, kind: eventRoster, process: id, slot: slot})
		}
	}
}

// adoptLatest sets the current list as that of a booting process, which reads it
// from the API server. The caller has checked that the list includes the process.
func (s *simulation) adoptLatest(p *process) { s.setRoster(p, s.members.current) }

// setRoster sets the list of a process, and the time of the adoption if the version
// is new to it.
func (s *simulation) setRoster(p *process, roster *election.Roster) {
	if roster.Version > p.roster.Version {
		p.adoptedAt = s.queue.now
	}
	p.roster = roster
}

// adopt delivers a published list to a process. A removed process may then end.
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
