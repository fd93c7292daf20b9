package office

import (
	"cmp"

	"github.com/conclave-dev/conclave/internal/election"
)

// A process flaps if its tenures are short again and again. Its application may fail as soon as
// it leads, or the process may stand still now and then. Without the following rules it would get
// the office back each time, because it has the highest rank.
//
//   - A tenure is short if it ends before Config.LongTenure, unless it ends by a hand-over, because an
//     operator requested that, or because the process has ended. A named successor that doesn't succeed counts as
//     if its tenure had been short (countFailedSuccession). From the second short tenure in a row on, the process
//     flaps. A tenure that isn't short ends the row, and so does a long time without any.
//   - Lapses of a process that has just started don't count: many start together, on machines that have too little
//     processor time for all of them meanwhile. That a successor doesn't succeed counts: it is the only one that fails
//     then.
//   - With each short tenure of the row, the process is held back for a penalty, which doubles,
//     up to three times. Until it ends, and until the tenure of the coordinator isn't short
//     itself, the coordinator doesn't hand over to that process: see considerHandOver.
//   - In a vacancy a process that flaps comes after the others: see precedes. They don't wait for
//     it. It waits for two heartbeats longer at most, so it leads if no other process can.
//   - After two lapses within twice the length of a tenure that isn't short, whichever processes lapsed, no coordinator
//     hands over to one of higher rank for that length: each hand-over would be one more change. A lapse just after the
//     pause causes another pause. Lapses of processes that have just started don't count here, either.
//
// Each process records the tenures of all others, and its own. So a coordinator knows whom to
// hold back although it has just begun to lead, and a crash of the process that flaps doesn't
// matter. A process that restarts knows nothing of earlier tenures: for it, nobody flaps until it
// has seen short tenures itself.

// tenureRecord is what a process remembers of the tenures of another one, or of its own.
type tenureRecord struct {
	// term is the term of the last tenure. It began at since, as far as this process knows.
	term  election.Term
	since election.Tick
	// ended: the tenure has ended, or its process has fallen silent. counted: it counts as one that has ended already.
	ended, counted bool
	// short is the number of short tenures in a row, up to maxShortTenures.
	short int
	// heldBackUntil is the end of the penalty, if there was one.
	heldBackUntil election.Tick
}

// unknownStart is the start of a tenure that began before this process did, which isn't short.
const unknownStart election.Tick = -1 << 62

// maxShortTenures bounds the penalty to eight times the length of a tenure that isn't short.
const maxShortTenures = 5

// ending is how a tenure ended.
type ending uint8

const (
	// handedOver: to a higher process or on request, or another process leads in Available mode.
	handedOver ending = iota
	// crashed: the process ended. The kubelet delays the next restart of a container that ends again and again.
	crashed
	// failed: its application ended.
	failed
	// lapsed: the process couldn't renew its grants, or fell silent.
	lapsed
)

// lapses counts the tenures in a row that were short and lapsed, whichever process held the office.
// If there are several, the delays of messages vary so much that grants which could just be renewed
// don't suffice.
type lapses struct {
	count int
	last  election.Tick
}

var noLapses = lapses{last: unknownStart}

// maxLapses limits the margin to one heartbeat.
const maxLapses = 5

// margin is how much longer grants must last: a quarter of a heartbeat for each lapse but the first. It leaves
// half of the time that members have to answer, so that a fast network is always fast enough.
func (l *lapses) margin(heartbeat, slack election.Tick) election.Tick {
	return min(heartbeat*election.Tick(max(l.count-1, 0))/4, max(slack, 0)/2)
}

// recordLapse counts a short tenure that lapsed. Nothing counts for longer than the longest penalty.
func (m *Machine) recordLapse() {
	if m.now >= m.lapses.last+m.longestPenalty() {
		m.lapses.count = 0
	}
	m.lapses = lapses{min(m.lapses.count+1, maxLapses), m.now}
}

func (m *Machine) newTenureRecord() tenureRecord {
	return tenureRecord{since: unknownStart, heldBackUntil: m.now}
}

// longTenure is how long a tenure must last so that it isn't short.
func (m *Machine) longTenure() election.Tick {
	return cmp.Or(m.cfg.LongTenure, max(10*m.cfg.StablePeriod, 120*m.cfg.Lease, 600*m.cfg.Heartbeat))
}

// penaltyFor is for how long a process is held back after so many short tenures in a row, at least two.
func (m *Machine) penaltyFor(short int) election.Tick { return m.longTenure() << (short - 2) }

// longestPenalty is the longest time for which a process is held back, and for which its short
// tenures are remembered after that.
func (m *Machine) longestPenalty() election.Tick { return m.penaltyFor(maxShortTenures) }

// beginTenure records the start of a tenure, or that its process has been heard again, which had fallen silent.
func (m *Machine) beginTenure(id election.ID, term election.Term, since election.Tick) {
	r := &m.peers[id].record
	if r.term != term {
		r.term, r.since, r.counted = term, since, false
		m.pauseHandOvers()
	}
	r.ended, m.lapsed = false, false
}

// endTenure records the end of the tenure of a process. That it handed over isn't its fault.
func (m *Machine) endTenure(id election.ID, how ending) {
	r := &m.peers[id].record
	if r.ended || r.term == 0 {
		return
	}
	long := m.now-r.since >= m.longTenure()
	counted := r.counted
	r.ended, r.counted = true, true
	m.lapsed = how == lapsed && !m.startedRecently(id)
	switch {
	case long:
		r.short, r.heldBackUntil = 0, m.now
		m.lapses = noLapses
	case counted:
	case how == lapsed:
		m.recordLapse()
		if !m.startedRecently(id) {
			m.addShortTenure(r)
		}
	case how == failed:
		m.addShortTenure(r)
	}
}

// pauseHandOvers pauses hand-overs if this tenure is the second one that follows a lapse, soon after the first one.
// Mere silence is no lapse: the same tenure goes on, or the process proves to have ended.
func (m *Machine) pauseHandOvers() {
	if !m.lapsed {
		return
	}
	if m.now < m.lapsedAt+2*m.longTenure() {
		m.handsOverAt = m.now + m.longTenure()
	}
	m.lapsedAt = m.now
}

// startedRecently reports whether a process has just started, as far as this one knows.
func (m *Machine) startedRecently(id election.ID) bool {
	return m.now < m.peers[id].startedAt+m.longTenure()/2
}

// addShortTenure counts a short tenure, and sets the penalty.
func (m *Machine) addShortTenure(r *tenureRecord) {
	if m.now >= r.heldBackUntil+m.longestPenalty() {
		r.short = 0
	}
	r.short, r.heldBackUntil = min(r.short+1, maxShortTenures), m.now
	if r.short > 1 {
		r.heldBackUntil += m.penaltyFor(r.short)
		m.penaltiesUntil = max(m.penaltiesUntil, r.heldBackUntil)
	}
}

// countFailedSuccession counts a short tenure of the named successor if another process succeeds. For
// example, the successor stands still again at that moment.
func (m *Machine) countFailedSuccession(actual election.ID) {
	if named := m.vacancy.successor; named != election.None && named != actual {
		m.addShortTenure(&m.peers[named].record)
	}
	m.vacancy.successor = election.None
}

// ownEnding is how the tenure of this process ends if it ends now.
func (m *Machine) ownEnding() ending {
	switch {
	case m.eligibility == applicationDead:
		return failed
	case m.role == Draining && m.now < m.until() || m.cfg.Mode == Available && !m.stoodStill():
		return handedOver
	}
	return lapsed
}

// endingOf is how the tenure of another process ended that has resigned.
func endingOf(resigned *election.Message) ending {
	switch {
	case resigned.Hold.Ready:
		return handedOver
	case resigned.Hold.Ineligible:
		return failed
	}
	return lapsed
}

// resetTenuresOfChanged forgets the short tenures of a process whose priority changes: an operator has
// decided that it should lead, or not.
func (m *Machine) resetTenuresOfChanged(next *election.Roster) {
	for id := range m.peers {
		if id := election.ID(id); m.roster.Priority(id) != next.Priority(id) {
			m.peers[id].record, m.lapsedAt, m.handsOverAt = m.newTenureRecord(), unknownStart, m.now
		}
	}
}

// Penalty is for how long a process is held back, and for how many short tenures in a row.
type Penalty struct {
	Length, Until election.Tick
	ShortTenures  int
}

// Penalty returns the penalty of a process, or the zero value if it isn't held back.
func (m *Machine) Penalty(id election.ID) Penalty {
	r := &m.peers[id].record
	if m.now >= r.heldBackUntil {
		return Penalty{}
	}
	return Penalty{Length: m.penaltyFor(r.short), Until: r.heldBackUntil, ShortTenures: r.short}
}

// Pause is for how long this process hands over to no higher one, after lapses, or 0.
func (m *Machine) Pause() election.Tick {
	if m.role < Holder || m.cfg.Policy == NeverPreempt || m.now >= m.handsOverAt {
		return 0
	}
	return m.longTenure()
}

// HeldBack returns the number of processes that are held back.
func (m *Machine) HeldBack() (count int) {
	if m.now >= m.penaltiesUntil { // nearly always
		return 0
	}
	for id := range m.peers {
		if m.now < m.peers[id].record.heldBackUntil {
			count++
		}
	}
	return count
}

// flaps reports whether the last tenures of a process were short: it is held back, or was until a moment ago. If the
// penalties of several processes end together, they would lead and fail in turn otherwise.
func (m *Machine) flaps(id election.ID) bool {
	r := &m.peers[id].record
	return r.short > 1 && m.now < r.heldBackUntil+m.longTenure()
}

// awaitTurn postpones the claim of a process that flaps and has won an election that another process started, and
// reports whether it did. Otherwise a coordinator that stood still for about a lease would end the claims of its
// successors each time. If no other process leads by then, it campaigns.
func (m *Machine) awaitTurn() bool {
	delay := m.campaignDelay()
	if m.role != Follower || m.vacancy.attempts > 0 || m.vacancy.campaignAt == election.Never || m.isNamedSuccessor() ||
		!m.flaps(m.cfg.Self) || delay == 0 {
		return false
	}
	m.vacancy.campaignAt = min(m.vacancy.campaignAt, m.now+delay)
	return true
}

// notHandedOverBefore is when the coordinator may hand over to a process in spite of its short
// tenures. If several processes flap, there is one attempt at a time.
func (m *Machine) notHandedOverBefore(id election.ID) election.Tick {
	r := &m.peers[id].record
	if r.short < 2 || m.now >= r.heldBackUntil+m.longestPenalty() {
		return m.handsOverAt
	}
	return max(r.heldBackUntil, m.handsOverAt, m.peers[m.cfg.Self].record.since+m.longTenure())
}

// precedes reports whether a process should be elected rather than another one.
func (m *Machine) precedes(a, b election.ID) bool {
	if flaps := m.flaps(a); flaps != m.flaps(b) {
		return !flaps
	}
	return m.roster.Outranks(a, b)
}

// precedesHigherRank reports whether this process precedes a live process of higher rank, which would
// win each election.
func (m *Machine) precedesHigherRank() bool {
	for _, other := range m.roster.Ranked()[:min(m.roster.Rank(m.cfg.Self), m.roster.Len())] {
		if m.precedes(m.cfg.Self, other.ID) && m.awaits(other) {
			return true
		}
	}
	return false
}

// awaits reports whether another process may campaign, as far as this one knows.
func (m *Machine) awaits(other election.Member) bool {
	return other.Priority > 0 && !m.detector.Suspects(other.ID) && !m.peers[other.ID].skipped
}

func (r *tenureRecord) encode(b []byte, m *Machine, now election.Tick) []byte {
	b = election.AppendNumber(b, uint64(r.term))
	b = election.AppendFlag(b, r.ended)
	b = election.AppendFlag(b, r.counted)
	b = election.AppendNumber(b, uint64(min(now-r.since, m.longTenure())))
	b = election.AppendNumber(b, uint64(r.short))
	b = election.AppendMoment(b, r.heldBackUntil, now)
	if r.short > 0 {
		b = election.AppendNumber(b, uint64(min(max(now-r.heldBackUntil, 0), m.longestPenalty())))
	}
	return b
}
