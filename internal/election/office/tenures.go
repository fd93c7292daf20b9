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
//     operator requested that. A first crash doesn't count: the next tenure will show the cause. From the second short
//     tenure in a row on, the process flaps: for a penalty, which doubles with each one, up to three times. A tenure
//     that isn't short ends the row, and so does a long time without any.
//   - Lapses of a process that has just started don't count: many start together, on machines that have too little
//     processor time for all of them meanwhile.
//   - The coordinator doesn't hand over to a process that flaps: see considerHandOver.
//   - In a vacancy a process that flaps comes after the others: see precedes. They don't wait for
//     it. It waits for two heartbeats longer at most, so it leads if no other process can.
//   - After two lapses within twice the length of a tenure that isn't short, whichever processes lapsed, no coordinator
//     hands over to one of higher rank for that length: each hand-over would be one more change. A lapse just after the
//     pause causes another pause. Lapses of processes that have just started don't count here, either. That a named
//     successor doesn't succeed counts like a lapse: it may stand still at that moment each time.
//
// Who comes last must not be a matter of opinion: two processes that disagree would both claim the office, and both
// fail. So each process keeps a record of its own tenures only, which survives when it is killed. It declares in each
// message whether it flaps, and the coordinator, which hears from all, repeats that in its BEATs.

// TenureRecord is what a process remembers of its own tenures, also when it is killed.
type TenureRecord struct {
	// Leading: the process holds the office, since the moment Since.
	Leading bool
	Since   election.Tick
	// Crashed: the last tenure was short, and the process was killed.
	Crashed bool
	// Short is the number of short tenures in a row, up to maxShortTenures. From the second one on, the process flaps
	// until HeldBackUntil.
	Short         int
	HeldBackUntil election.Tick
}

// unknownStart is the start of a tenure that began before this process did, which isn't short.
const unknownStart election.Tick = -1 << 62

// maxShortTenures bounds the penalty to eight times the length of a tenure that isn't short.
const maxShortTenures = 5

// Shifted returns the record with moments on a clock that is ahead by a number of ticks.
func (r TenureRecord) Shifted(ahead election.Tick) TenureRecord {
	r.Since += ahead
	r.HeldBackUntil += ahead
	return r
}

// lastTenure is the present or the last tenure, as far as this process knows.
type lastTenure struct {
	id    election.ID
	term  election.Term
	since election.Tick
	// ended: it has ended, or its process has fallen silent. counted: that has counted as a lapse.
	ended, counted bool
}

// tenures is what a process knows of tenures.
type tenures struct {
	own    TenureRecord
	last   lastTenure
	lapses lapses
	// lapsed: the last tenure has lapsed, and no other one has begun. lapsedAt is when one began after the last
	// lapse, and handsOverAt until when hand-overs are paused: see pauseHandOvers.
	lapsed                bool
	lapsedAt, handsOverAt election.Tick
}

func newTenures(own TenureRecord, c *Config) tenures {
	t := tenures{
		own: own, last: lastTenure{since: unknownStart}, lapses: noLapses, lapsedAt: unknownStart, handsOverAt: c.Start,
	}
	t.own.end(crashed, c, c.Start)
	return t
}

// ending is how a tenure ended.
type ending uint8

const (
	// handedOver: to a higher process or on request, or another process leads in Available mode.
	handedOver ending = iota
	// crashed: the process was killed. That is no reason to hold a process back, but twice in a row is.
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

// longTenure is how long a tenure must last so that it isn't short.
func (c *Config) longTenure() election.Tick {
	return cmp.Or(c.LongTenure, max(10*c.StablePeriod, 120*c.Lease, 600*c.Heartbeat))
}

// penaltyFor is for how long a process is held back after so many short tenures in a row, at least two.
func (c *Config) penaltyFor(short int) election.Tick { return c.longTenure() << (short - 2) }

// longestPenalty is the longest time for which a process is held back, and for which its short
// tenures are remembered after that.
func (c *Config) longestPenalty() election.Tick { return c.penaltyFor(maxShortTenures) }

// tenureBegins records the start of a tenure, or that its process has been heard again, which had fallen silent.
func (s *state) tenureBegins(id election.ID, term election.Term, since election.Tick) {
	t := &s.tenures
	if t.last.id != id || t.last.term != term {
		t.last = lastTenure{id: id, term: term, since: since}
		t.pauseHandOvers(&s.cfg, s.now)
	}
	t.last.ended, t.lapsed = false, false
	if id == s.cfg.Self {
		t.own.Leading, t.own.Since = true, since
	}
}

// tenureEnds records the end of the tenure of a process. That it handed over isn't its fault.
func (s *state) tenureEnds(id election.ID, how ending) {
	t := &s.tenures
	recent := s.now < s.peers[id].startedAt+s.cfg.longTenure()/2
	if id == s.cfg.Self {
		blame := how
		if how == lapsed && recent {
			blame = handedOver
		}
		t.own.end(blame, &s.cfg, s.now)
	}
	if id != t.last.id || t.last.ended {
		return
	}
	counted := t.last.counted
	t.last.ended, t.last.counted = true, true
	t.lapsed = how == lapsed && !recent
	switch {
	case s.now-t.last.since >= s.cfg.longTenure():
		t.lapses = noLapses
	case how == lapsed && !counted:
		t.lapses.record(&s.cfg, s.now)
	}
}

// end records the end of a tenure of this process.
func (r *TenureRecord) end(how ending, c *Config, now election.Tick) {
	if !r.Leading {
		return
	}
	short, again := now < r.Since+c.longTenure(), r.Crashed
	r.Leading, r.Crashed = false, short && how == crashed
	switch {
	case !short:
		r.Short = 0
	case how == failed, how == lapsed, how == crashed && again:
		r.addShort(c, now)
	}
}

// addShort counts a short tenure, and sets the penalty.
func (r *TenureRecord) addShort(c *Config, now election.Tick) {
	if now >= r.HeldBackUntil+c.longestPenalty() {
		r.Short = 0
	}
	r.Short, r.HeldBackUntil = min(r.Short+1, maxShortTenures), now
	if r.Short > 1 {
		r.HeldBackUntil += c.penaltyFor(r.Short)
	}
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

// countFailedSuccession counts a lapse if another process succeeds than the named successor.
func (m *Machine) countFailedSuccession(actual election.ID) {
	if named := m.vacancy.successor; named != election.None && named != actual {
		m.tenures.lapsed = true
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
		id := election.ID(id)
		if s.roster.Priority(id) == next.Priority(id) {
			continue
		}
		s.tenures.lapsedAt, s.tenures.handsOverAt = unknownStart, s.now
		s.peers[id].flaps = false
		if id == s.cfg.Self {
			s.tenures.own.Short, s.tenures.own.Crashed = 0, false
		}
	}
}

// Tenures returns what the process has to remember of its tenures when it is killed.
func (s *state) Tenures() TenureRecord { return s.tenures.own }

// Penalty is for how long a process comes last, and for how many short tenures in a row.
type Penalty struct {
	Length, Until election.Tick
	ShortTenures  int
}

// Penalty returns the penalty of this process, or the zero value if it doesn't flap.
func (s *state) Penalty() Penalty {
	until, short := s.flapsUntil(), s.tenures.own.Short
	if s.now >= until {
		return Penalty{}
	}
	return Penalty{Length: s.cfg.penaltyFor(short), Until: until, ShortTenures: short}
}

// Pause is for how long this process hands over to no higher one, after lapses, or 0.
func (s *state) Pause() election.Tick {
	if s.role < Holder || s.cfg.Policy == NeverPreempt || s.now >= s.tenures.handsOverAt {
		return 0
	}
	return s.cfg.longTenure()
}

// HeldBack returns the number of processes that flap, as far as this one knows.
func (s *state) HeldBack() (count int) {
	for id := range s.peers {
		if id := election.ID(id); s.flaps(id) && s.isMember(id) { // nearly always, none does
			count++
		}
	}
	return count
}

// flapsUntil is when this process doesn't flap any more. If the penalties of several processes end together, they would
// lead and fail in turn: so a process also waits until the last tenure isn't short, its own one or that of another.
func (s *state) flapsUntil() election.Tick {
	r := &s.tenures.own
	if r.Short < 2 {
		return s.now
	}
	return max(r.HeldBackUntil, min(s.tenures.last.since+s.cfg.longTenure(), r.HeldBackUntil+s.cfg.longestPenalty()))
}

// flaps reports whether the last tenures of a process were short, as it declares.
func (s *state) flaps(id election.ID) bool {
	if id == s.cfg.Self {
		return s.now < s.flapsUntil()
	}
	return s.peers[id].flaps
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
	b = election.AppendNumber(b, uint64(t.lapses.count))
	b = election.AppendNumber(b, uint64(min(now-t.lapses.last, c.longestPenalty())))
	b = election.AppendFlag(b, t.lapsed)
	b = election.AppendNumber(b, uint64(min(now-t.lapsedAt, 2*c.longTenure())))
	b = election.AppendMoment(b, max(t.handsOverAt, now), now)
	b = election.AppendNumber(b, uint64(t.last.id))
	b = election.AppendNumber(b, uint64(t.last.term))
	b = election.AppendFlag(b, t.last.ended)
	b = election.AppendFlag(b, t.last.counted)
	b = election.AppendNumber(b, uint64(min(now-t.last.since, c.longTenure())))
	return t.own.encode(b, c, now)
}

func (r *TenureRecord) encode(b []byte, c *Config, now election.Tick) []byte {
	b = election.AppendFlag(b, r.Crashed)
	b = election.AppendFlag(b, r.Leading)
	if r.Leading {
		b = election.AppendNumber(b, uint64(min(now-r.Since, c.longTenure())))
	}
	b = election.AppendNumber(b, uint64(r.Short))
	if r.Short == 0 {
		return b
	}
	past := c.longestPenalty() // how long a penalty counts when it has ended
	return election.AppendNumber(b, uint64(past+max(r.HeldBackUntil-now, -past)))
}
