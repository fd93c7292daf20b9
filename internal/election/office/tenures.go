package office

import (
	"cmp"

	"github.com/conclave-dev/conclave/internal/election"
)

// A process flaps if its tenures are short again and again. Its application may fail as soon as
// it leads, or the process may stand still now and then. Without the following rules it would get
// the office back each time, because it has the highest rank.
//
//   - A tenure is short if it ends before Config.LongTenure, unless it ends by a hand-over, or because an
//     operator requested that. A first crash doesn't count: the next tenure will show the cause. A named successor that
//     doesn't succeed counts as if its tenure had been short (countFailedSuccession). From the second short tenure in a
//     row on, the process flaps. A tenure that isn't short ends the row, and so does a long time without any.
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
// Each process records the tenures of all others, and its own. So a coordinator knows whom to hold back although it has
// just begun to lead, and a crash of the process that flaps doesn't matter. A process that restarts knows nothing of
// earlier tenures: for it, nobody flaps until it has seen short tenures itself.

// tenureRecord is what a process remembers of the tenures of another one, or of its own.
type tenureRecord struct {
	// term is the term of the last tenure. It began at since, as far as this process knows.
	term  election.Term
	since election.Tick
	// ended: the tenure has ended, or its process has fallen silent. counted: it counts as one that has ended already.
	ended, counted bool
	// crashed: the last tenure was short, and its process ended.
	crashed bool
	// short is the number of short tenures in a row, up to maxShortTenures.
	short int
	// heldBackUntil is the end of the penalty, if there was one.
	heldBackUntil election.Tick
	// startedAt is when this process first heard from the present incarnation, or when it started itself: see
	// startedRecently.
	startedAt election.Tick
}

// tenures is what a process remembers of tenures, by ID of their processes.
type tenures struct {
	records []tenureRecord
	lapses  lapses
	// lapsed: the last tenure has lapsed, and no other one has begun. lapsedAt is when one began after the last
	// lapse, and handsOverAt until when hand-overs are paused: see pauseHandOvers.
	lapsed                bool
	lapsedAt, handsOverAt election.Tick
	// penaltiesUntil is when the last penalty ends, at the latest.
	penaltiesUntil election.Tick
}

func (t *tenures) reset(now election.Tick) {
	*t = tenures{
		records: t.records[:0], lapses: noLapses, lapsedAt: unknownStart, handsOverAt: now, penaltiesUntil: now,
	}
}

// grow makes room for another process.
func (t *tenures) grow(now election.Tick) {
	t.records = append(t.records, newTenureRecord(now))
	t.records[len(t.records)-1].startedAt = now
}

// started records that an incarnation has started.
func (t *tenures) started(id election.ID, now election.Tick) { t.records[id].startedAt = now }

// unknownStart is the start of a tenure that began before this process did, which isn't short.
const unknownStart election.Tick = -1 << 62

// maxShortTenures bounds the penalty to eight times the length of a tenure that isn't short.
const maxShortTenures = 5

// ending is how a tenure ended.
type ending uint8

const (
	// handedOver: to a higher process or on request, or another process leads in Available mode.
	handedOver ending = iota
	// crashed: the process ended. A crash is no reason to hold a process back, but two in a row are.
	crashed
	// failed: its application ended.
	failed
	// lapsed: the process couldn't renew its grants, or fell silent.
	lapsed
)

// lapses counts the tenures in a row that were short and lapsed, whichever process held the office. If there are
// several, the delays of messages vary so much that grants which could just be renewed don't suffice.
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

// record counts a short tenure that lapsed. Nothing counts for longer than the longest penalty.
func (l *lapses) record(c *Config, now election.Tick) {
	if now >= l.last+c.longestPenalty() {
		l.count = 0
	}
	*l = lapses{min(l.count+1, maxLapses), now}
}

func newTenureRecord(now election.Tick) tenureRecord {
	return tenureRecord{since: unknownStart, heldBackUntil: now}
}

// longTenure is how long a tenure must last so that it isn't short.
func (c *Config) longTenure() election.Tick {
	return cmp.Or(c.LongTenure, max(10*c.StablePeriod, 120*c.Lease, 600*c.Heartbeat))
}

// penaltyFor is for how long a process is held back after so many short tenures in a row, at least two.
func (c *Config) penaltyFor(short int) election.Tick { return c.longTenure() << (short - 2) }

// longestPenalty is the longest time for which a process is held back, and for which its short
// tenures are remembered after that.
func (c *Config) longestPenalty() election.Tick { return c.penaltyFor(maxShortTenures) }

// begin records the start of a tenure, or that its process has been heard again, which had fallen silent.
func (t *tenures) begin(id election.ID, term election.Term, since election.Tick, c *Config, now election.Tick) {
	r := &t.records[id]
	if r.term != term {
		r.term, r.since, r.counted = term, since, false
		t.pauseHandOvers(c, now)
	}
	r.ended, t.lapsed = false, false
}

// end records the end of the tenure of a process. That it handed over isn't its fault.
func (t *tenures) end(id election.ID, how ending, c *Config, now election.Tick) {
	r := &t.records[id]
	if r.ended || r.term == 0 {
		return
	}
	long, counted, recent := now-r.since >= c.longTenure(), r.counted, r.startedRecently(c, now)
	r.ended, r.counted = true, true
	t.lapsed = how == lapsed && !recent
	switch {
	case long:
		r.short, r.heldBackUntil = 0, now
		t.lapses = noLapses
	case counted:
	case how == lapsed:
		t.lapses.record(c, now)
		if !recent {
			t.addShort(id, c, now)
		}
	case how == failed, how == crashed && r.crashed:
		t.addShort(id, c, now)
	}
	r.crashed = how == crashed && !long
}

// pauseHandOvers pauses hand-overs if this tenure is the second one that follows a lapse, soon after the first one.
// Mere silence is no lapse: the same tenure goes on, or the process proves to have ended.
func (t *tenures) pauseHandOvers(c *Config, now election.Tick) {
	if !t.lapsed {
		return
	}
	if now < t.lapsedAt+2*c.longTenure() {
		t.handsOverAt = now + c.longTenure()
	}
	t.lapsedAt = now
}

// startedRecently reports whether a process has just started, as far as this one knows.
func (r *tenureRecord) startedRecently(c *Config, now election.Tick) bool {
	return now < r.startedAt+c.longTenure()/2
}

// addShort counts a short tenure, and sets the penalty.
func (t *tenures) addShort(id election.ID, c *Config, now election.Tick) {
	r := &t.records[id]
	if now >= r.heldBackUntil+c.longestPenalty() {
		r.short = 0
	}
	r.short, r.heldBackUntil = min(r.short+1, maxShortTenures), now
	if r.short > 1 {
		r.heldBackUntil += c.penaltyFor(r.short)
		t.penaltiesUntil = max(t.penaltiesUntil, r.heldBackUntil)
	}
}

// forget forgets the short tenures of a process.
func (t *tenures) forget(id election.ID, now election.Tick) {
	started := t.records[id].startedAt
	t.records[id] = newTenureRecord(now)
	t.records[id].startedAt = started
	t.lapsedAt, t.handsOverAt = unknownStart, now
}

// heldBack returns the number of processes that are held back.
func (t *tenures) heldBack(now election.Tick) (count int) {
	if now >= t.penaltiesUntil { // nearly always
		return 0
	}
	for i := range t.records {
		if now < t.records[i].heldBackUntil {
			count++
		}
	}
	return count
}

// flaps reports whether the last tenures of a process were short: it is held back, or was until a moment ago. If the
// penalties of several processes end together, they would lead and fail in turn otherwise.
func (t *tenures) flaps(id election.ID, c *Config, now election.Tick) bool {
	r := &t.records[id]
	return r.short > 1 && now < r.heldBackUntil+c.longTenure()
}

// mayHandOverAt is when the coordinator may hand over to a process in spite of its short
// tenures. If several processes flap, there is one attempt at a time.
func (t *tenures) mayHandOverAt(coordinator, to election.ID, c *Config, now election.Tick) election.Tick {
	r := &t.records[to]
	if r.short < 2 || now >= r.heldBackUntil+c.longestPenalty() {
		return t.handsOverAt
	}
	return max(r.heldBackUntil, t.handsOverAt, t.records[coordinator].since+c.longTenure())
}

// countFailedSuccession counts a short tenure of the named successor if another process succeeds. For
// example, the successor stands still again at that moment.
func (m *Machine) countFailedSuccession(actual election.ID) {
	if named := m.vacancy.successor; named != election.None && named != actual {
		m.tenures.addShort(named, &m.cfg, m.now)
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
func (s *state) resetTenuresOfChanged(next *election.Roster) {
	for id := range s.peers {
		if id := election.ID(id); s.roster.Priority(id) != next.Priority(id) {
			s.tenures.forget(id, s.now)
		}
	}
}

// Penalty is for how long a process is held back, and for how many short tenures in a row.
type Penalty struct {
	Length, Until election.Tick
	ShortTenures  int
}

// Penalty returns the penalty of a process, or the zero value if it isn't held back.
func (s *state) Penalty(id election.ID) Penalty {
	r := &s.tenures.records[id]
	if s.now >= r.heldBackUntil {
		return Penalty{}
	}
	return Penalty{Length: s.cfg.penaltyFor(r.short), Until: r.heldBackUntil, ShortTenures: r.short}
}

// Pause is for how long this process hands over to no higher one, after lapses, or 0.
func (s *state) Pause() election.Tick {
	if s.role < Holder || s.cfg.Policy == NeverPreempt || s.now >= s.tenures.handsOverAt {
		return 0
	}
	return s.cfg.longTenure()
}

// HeldBack returns the number of processes that are held back.
func (s *state) HeldBack() (count int) { return s.tenures.heldBack(s.now) }

// flaps: see tenures.
func (s *state) flaps(id election.ID) bool { return s.tenures.flaps(id, &s.cfg, s.now) }

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

// precedes reports whether a process should be elected rather than another one.
func (s *state) precedes(a, b election.ID) bool {
	if flaps := s.flaps(a); flaps != s.flaps(b) {
		return !flaps
	}
	return s.roster.Outranks(a, b)
}

// precedesHigherRank reports whether this process precedes a live process of higher rank, which would
// win each election.
func (s *state) precedesHigherRank() bool {
	for _, other := range s.roster.Ranked()[:min(s.roster.Rank(s.cfg.Self), s.roster.Len())] {
		if s.precedes(s.cfg.Self, other.ID) && s.awaits(other) {
			return true
		}
	}
	return false
}

// awaits reports whether another process may campaign, as far as this one knows.
func (s *state) awaits(other election.Member) bool {
	return other.Priority > 0 && !s.detector.Suspects(other.ID) && !s.peers[other.ID].skipped
}

func (t *tenures) encode(b []byte, c *Config, now election.Tick) []byte {
	b = election.AppendMoment(b, max(t.penaltiesUntil, now), now)
	b = election.AppendNumber(b, uint64(t.lapses.count))
	b = election.AppendNumber(b, uint64(min(now-t.lapses.last, c.longestPenalty())))
	b = election.AppendFlag(b, t.lapsed)
	b = election.AppendNumber(b, uint64(min(now-t.lapsedAt, 2*c.longTenure())))
	b = election.AppendMoment(b, max(t.handsOverAt, now), now)
	for i := range t.records {
		b = t.records[i].encode(b, c, now)
	}
	return b
}

func (r *tenureRecord) encode(b []byte, c *Config, now election.Tick) []byte {
	b = election.AppendNumber(b, uint64(r.term))
	b = election.AppendFlag(b, r.ended)
	b = election.AppendFlag(b, r.counted)
	b = election.AppendFlag(b, r.crashed)
	b = election.AppendNumber(b, uint64(min(now-r.since, c.longTenure())))
	b = election.AppendNumber(b, uint64(r.short))
	b = election.AppendMoment(b, r.heldBackUntil, now)
	b = election.AppendNumber(b, uint64(min(now-r.startedAt, c.longTenure()/2)))
	if r.short > 0 {
		b = election.AppendNumber(b, uint64(min(max(now-r.heldBackUntil, 0), c.longestPenalty())))
	}
	return b
}
