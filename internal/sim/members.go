package sim

import (
	"slices"
	"strconv"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// operator is the simulated operator. It decides with the code of the real one (package
// memberlist). As the real one does, it first records a decision, and publishes it later.
// A process that starts in between begins with the list that was published before.
type operator struct {
	// wanted are the members that a user wants, and decided is the list that the operator
	// has decided on. It has published latestPublished.
	wanted                   []memberlist.Member
	decided, latestPublished *memberlist.List
	// published has all published lists: a list is published again when members of the previous one have departed, and
	// when it has settled. The last one is current, and its version was published at publishedAt.
	published   []*election.Roster
	current     *election.Roster
	publishedAt election.Tick
	// term is the highest term that the operator knows, and ahead by how many seconds its clock is ahead.
	term  election.Term
	ahead int64
	// replicas know which processes are connected. One of them leads.
	replicas [2]replica
	leads    int
}

// maxLevel bounds the levels from which priorities are drawn.
const maxLevel = 30

// name returns the name of a process in a list, and idOf is the inverse.
func name(id election.ID) string { return strconv.Itoa(int(id)) }

func idOf(name string) election.ID {
	id, err := strconv.Atoi(name)
	if err != nil {
		panic(err)
	}
	return election.ID(id)
}

func (o *operator) reset(roster *election.Roster, decided *memberlist.List) {
	*o = operator{wanted: decided.Members, decided: decided, latestPublished: decided, published: append(o.published[:0],
		roster), current: roster}
}

// adoptionWait returns the time after which a process counts as having adopted a list.
func (s *simulation) adoptionWait() election.Tick {
	if s.mode == office.Available {
		return 0
	}
	return s.schedule.maxLease()
}

func (s *simulation) changeMembers() {
	if s.queue.now >= s.schedule.healAt {
		return
	}
	wanted := s.drawMembers()
	for _, m := range wanted {
		if m.Priority > 0 { // the API refuses a list without such a member
			s.operator.wanted = wanted
			s.reconcileAt(s.queue.now)
			return
		}
	}
}

// reconcileAt makes the operator reconcile at a time, or somewhat later.
func (s *simulation) reconcileAt(at election.Tick) {
	s.schedule.push(s, action{at: max(at, s.queue.now) + s.operatorDelay(), kind: actReconcile})
}

func (s *simulation) operatorDelay() election.Tick {
	if s.rng2.percent(50) {
		return 0
	}
	return s.rng2.tick(suspicionTimeout)
}

func (s *simulation) reconcile() {
	o := &s.operator
	if s.rng2.percent(50) {
		o.term = max(o.term, s.highestTerm())
	} else if s.schedule.startsIn != firstTerm {
		s.schedule.push(s, action{at: s.queue.now + lease, kind: actReconcile})
	}
	s.changeOperator()
	facts := memberlist.Facts{
		Draining:  s.drainingCoordinator(),
		Published: o.decided.Version == o.current.Version, Adopted: s.hasAdopted, Missing: s.isMissing,
		Identity: func(name string) string { return formatIdentity(o.replicas[o.leads].identities[idOf(name)]) },
		Seconds:  o.ahead + int64(s.queue.now/ticksPerSecond), Term: int64(o.term),
	}
	if s.queue.now < s.schedule.healAt {
		facts.Wanted = o.wanted
	}
	next := facts.Next(o.decided)
	if next == o.decided {
		return
	}
	if next.Version > o.decided.Version {
		s.cover(Members, election.None)
	} else {
		s.checkBinding(o.decided.Members, next.Members)
	}
	o.decided = next
	s.schedule.push(s, action{at: s.queue.now + s.operatorDelay(), kind: actPublish})
}

// drainingCoordinator reports whether a process holds the office that the list decided last doesn't permit to be
// elected.
func (s *simulation) drainingCoordinator() bool {
	for id := election.ID(1); id <= s.maxID; id++ {
		mayLead := func(m memberlist.Member) bool { return m.Name == name(id) && m.Priority > 0 }
		if p := &s.processes[id]; p.up && p.status.Token != 0 && !slices.ContainsFunc(s.operator.decided.Members, mayLead) {
			return true
		}
	}
	return false
}

func (s *simulation) highestTerm() election.Term {
	var highest election.Term
	for id := election.ID(1); id <= s.maxID; id++ {
		if p := &s.processes[id]; p.up {
			highest = max(highest, p.status.Term)
		}
	}
	return highest
}

func (s *simulation) hasAdopted(name string) bool {
	p := &s.processes[idOf(name)]
	return p.roster.Version >= s.operator.decided.Version && s.queue.now >= p.adoptedAt+s.adoptionWait()
}

// isMissing reports whether a process has had no pod for so long that it counts as departed.
func (s *simulation) isMissing(name string) bool {
	p := &s.processes[idOf(name)]
	return s.hasRetired(name) || !p.up && (p.removed || p.podGone) && s.queue.now >= s.missingFrom(p)
}

func (s *simulation) missingFrom(p *process) election.Tick {
	return max(p.downSince, s.operator.publishedAt) + s.adoptionWait()
}

// markMissing records that a process that is down has no pod. If it is no longer a member, it never restarts.
func (s *simulation) markMissing(id election.ID, p *process) {
	p.removed = p.removed || !s.operator.current.Has(id)
	if p.removed || p.podGone {
		s.reconcileAt(s.missingFrom(p))
	}
}

func (s *simulation) publish() {
	o := &s.operator
	before := o.current
	if o.latestPublished == o.decided {
		return
	}
	o.latestPublished = o.decided
	o.current = rosterOf(o.decided)
	if o.current.Version > before.Version {
		o.publishedAt = s.queue.now
		s.checker.electionCause = true // members that have adopted it renew no tenure under the old one
	}
	o.published = append(o.published, o.current)
	if s.needsNextList() {
		s.reconcileAt(s.queue.now)
	}
	slot := uint32(len(o.published) - 1)
	if o.current.Version > before.Version {
		s.reportFault(outageMembers, election.None, "member list %d is published: %v", o.current.Version, o.current.Ring())
		s.startMembers(slot)
		for _, m := range before.Ring() {
			if p := &s.processes[m.ID]; !p.up {
				s.markMissing(m.ID, p)
			}
		}
	}
	for id := election.ID(1); id <= s.maxID; id++ {
		p := &s.processes[id]
		p.missedList = o.replicas[o.leads].identities[id] != p.disk.identity
		if p.up && !p.missedList {
			at := s.queue.now + s.rng.tick(suspicionTimeout)
			if id == s.schedule.late {
				at += s.schedule.lateBy
			}
			s.queue.push(event{at: at, kind: eventRoster, process: id, slot: slot})
		}
	}
}

// rosterOf returns a list as processes get it.
func rosterOf(list *memberlist.List) *election.Roster {
	roster, err := election.RosterOf(list, idOf)
	if err != nil {
		panic(err)
	}
	return roster
}

func (s *simulation) startMembers(slot uint32) {
	for _, m := range s.operator.current.Ring() {
		p := &s.processes[m.ID]
		s.maxID = max(s.maxID, m.ID)
		if !p.exists {
			p.exists, p.clock = true, s.schedule.drawClock(s)
			p.roster, p.slot, p.adoptedAt = s.operator.published[slot], slot, s.queue.now
			s.schedule.push(s, action{at: s.queue.now + s.rng.tick(lease), kind: actRestart, target: m.ID})
		}
	}
}

// drawMembers draws the members that a user wants next: there are more, fewer or other
// ones, or their priorities change.
func (s *simulation) drawMembers() []memberlist.Member {
	wanted := slices.Clone(s.operator.wanted)
	r := &s.rng
	grow, shrink := 0, 0
	switch r.below(4) {
	case 0:
		grow = r.between(1, 2)
	case 1:
		shrink = r.between(1, max(1, len(wanted)-2))
	case 2:
		grow = r.between(1, len(wanted))
		shrink = grow
	default:
		a, b := &wanted[r.below(len(wanted))], &wanted[r.below(len(wanted))]
		if r.percent(30) {
			a.Priority = 0
		} else if s.usesGrants() {
			a.Priority, b.Priority = b.Priority, a.Priority
		} else { // without grants, tokens need distinct priorities: see priority
			a.Priority = priority(idOf(a.Name), r.below(maxLevel))
		}
	}
	next := s.maxID
	for _, m := range wanted {
		next = max(next, idOf(m.Name))
	}
	for ; shrink > 0 && len(wanted) > 1; shrink-- {
		i := r.below(len(wanted))
		wanted = append(wanted[:i], wanted[i+1:]...)
	}
	for ; grow > 0 && next < maxMembers; grow-- {
		next++
		m := memberlist.Member{Name: name(next), Priority: s.drawPriority(next)}
		for hasPriority(wanted, m.Priority) { // of a process that was wanted before, and never started
			m.Priority = s.drawPriority(next)
		}
		wanted = append(wanted, m)
		s.meetMember(next)
	}
	return wanted
}

func hasPriority(members []memberlist.Member, priority uint32) bool {
	return priority > 0 &&
		slices.ContainsFunc(members, func(m memberlist.Member) bool { return m.Priority == priority })
}

// drawPriority draws the priority of a process that joins. A priority of 0 makes it ineligible.
func (s *simulation) drawPriority(id election.ID) uint32 {
	if s.rng.percent(15) {
		return 0
	}
	return priority(id, s.rng.below(maxLevel))
}

func (o *operator) latest() uint32 { return uint32(len(o.published) - 1) }

// setRoster sets the list of a process, and the time of the adoption if the version is new to it.
func (s *simulation) setRoster(p *process, slot uint32) {
	roster := s.operator.published[slot]
	if roster.Version > p.roster.Version {
		p.before, p.adoptedAt = p.roster, s.queue.now
		s.reconcileAt(s.queue.now + s.adoptionWait())
	}
	p.roster, p.slot = roster, slot
}

// adopt makes a process adopt a published list. A removed process may then end.
func (s *simulation) adopt(id election.ID, slot uint32) {
	p := &s.processes[id]
	s.setRoster(p, slot)
	s.updateVote(id, false)
	s.step(id, election.Input{Kind: election.Adopt, Roster: p.roster})
	if !p.roster.Has(id) && s.mode != office.Available && s.rng.percent(50) {
		s.schedule.push(s, action{at: s.queue.now + s.rng.tick(lease), kind: actCrash, target: id})
	}
}
