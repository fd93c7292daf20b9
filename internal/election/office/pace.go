package office

import (
	"cmp"

	"github.com/conclave-dev/conclave/internal/election"
)

// The coordinator adapts the timing of the group to the delays that it measures. The pace
// is the share of the usual timing that is in force, for the suspicion timeout of followers
// and for the lease. It is usually 1.
//
// Under load, when renewals are late, the pace grows, up to the longest lease. So a group on
// an overloaded machine keeps its coordinator, and notices later that one has fallen silent.
//
//   - The lease is at least leasePerGap times as long as the longest time between two renewals.
//   - If a coordinator loses its grants or falls silent nevertheless, the next tenure begins
//     with twice the pace. Otherwise it would end in the same way.
//
// While the network and the machines are quiet, a group with a MinHeartbeat has a smaller pace.
// The coordinator sends BEATs more often, too, announces that with each BEAT, and so a silent
// coordinator is replaced sooner.
//
//   - The pace grows at once. An answer, or a timer of the coordinator, that is late by more than
//     a quarter of a heartbeat makes the next heartbeat longer. The same happens when a
//     member has lost the coordinator, because that suspicion is false.
//   - Each tenure begins with the usual timing, or a longer one.
//   - In Strict the lease isn't shortened.
//
// The pace shrinks slowly: at most by half per calm period, and only to what the delays of
// this period and the one before allow. A late renewal counts for about a minute, because load
// comes in waves. The coordinator suspects others after the
// configured timeout, because nothing is gained if it does so sooner.
//
// No rule of safety depends on the pace: each grant names its lease (package grants). A
// process that follows no announcements, because it has other bounds or is older, only
// waits longer, or suspects a coordinator sooner.

// fullPace stands for the usual timing. A pace is in thousandths.
const fullPace election.Tick = 1000

// delaysPerHeartbeat is how many times as long as the longest delay a heartbeat is. The
// suspicion timeout is four heartbeats by default. So a delay that leads to a suspicion
// is twelve times as long as any other one of the last calm periods.
const delaysPerHeartbeat = 4

// leasePerGap is how many times as long as the longest time between two renewals a lease is, at least.
const leasePerGap = 3

// delays are those that a holder has measured.
type delays struct {
	// longest is the longest one of this calm period, which ends at periodEnd, and
	// before that of the period before.
	longest, before election.Tick
	// longestGap is the longest time between two renewals of this calm period, and gapBefore
	// what the earlier periods still count for: an eighth less with each one.
	longestGap, gapBefore election.Tick
	periodEnd             election.Tick
	// renewedAt is when the last BEATs were sent after which a majority has answered.
	renewedAt election.Tick
}

// newDelays returns the delays at the start of a tenure: those that its pace would suit.
func (m *Machine) newDelays() delays {
	d := delays{periodEnd: m.now + m.cfg.CalmPeriod, renewedAt: m.now}
	if m.pace > fullPace {
		d.gapBefore = m.scaled(m.cfg.usualLease()) / leasePerGap
	}
	return d
}

func (d *delays) encode(b []byte, now election.Tick) []byte {
	for _, delay := range [...]election.Tick{d.longest, d.before, d.longestGap, d.gapBefore} {
		b = election.AppendNumber(b, uint64(delay))
	}
	b = election.AppendMoment(b, d.renewedAt, now)
	return election.AppendMoment(b, d.periodEnd, now)
}

// adaptive reports whether this process shortens its timing.
func (c *Config) adaptive() bool { return 0 < c.MinHeartbeat && c.MinHeartbeat < c.Heartbeat }

// usualLease is the lease while nothing is late.
func (c *Config) usualLease() election.Tick { return cmp.Or(c.UsualLease, c.Lease) }

// longestPace is the pace at which the lease is the longest one.
func (c *Config) longestPace() election.Tick {
	if c.usualLease() <= 0 {
		return fullPace
	}
	return max(fullPace, c.Lease*fullPace/c.usualLease())
}

// scaled returns the share of a usual duration that is in force.
func (m *Machine) scaled(d election.Tick) election.Tick { return d * m.pace / fullPace }

// HeartbeatInForce returns the interval at which the coordinator sends BEATs now, as far
// as this process knows.
func (m *Machine) HeartbeatInForce() election.Tick {
	return min(m.scaled(m.cfg.Heartbeat), m.cfg.Heartbeat)
}

// SuspicionTimeoutInForce returns after which silence the coordinator is suspected now, as far as this process knows.
func (m *Machine) SuspicionTimeoutInForce() election.Tick { return m.scaled(m.cfg.SuspicionTimeout) }

// announced returns the interval of heartbeats for which followers set their suspicion timeout. It is longer than the
// real one if renewals have been late.
func (m *Machine) announced(interval election.Tick) election.Tick {
	return max(interval, m.scaled(m.cfg.Heartbeat))
}

// requestedLease returns the lease for which this process requests grants.
func (m *Machine) requestedLease() election.Tick {
	lease := m.scaled(m.cfg.usualLease())
	switch m.cfg.Mode {
	case Available:
		return 0
	case Majority:
	case Strict:
		lease = max(lease, m.cfg.usualLease())
	}
	return min(lease, m.cfg.Lease)
}

// paceFor returns the pace at which heartbeats have at least this interval, within the
// bounds of this process.
func (m *Machine) paceFor(interval election.Tick) election.Tick {
	thousandths := func(d election.Tick) election.Tick {
		d = min(max(d, 0), m.cfg.Heartbeat)
		return (d*fullPace + m.cfg.Heartbeat - 1) / m.cfg.Heartbeat
	}
	return max(thousandths(interval), thousandths(m.cfg.MinHeartbeat), 1)
}

// measure records a delay of this tenure: of an answer, or of a timer. A long one makes
// the heartbeats that follow longer.
func (m *Machine) measure(delay election.Tick) {
	if m.role < Holder || !m.cfg.adaptive() {
		return
	}
	delay = min(delay, m.cfg.Heartbeat)
	m.tenure.delays.longest = max(m.tenure.delays.longest, delay)
	m.pace = max(m.pace, m.paceFor(delaysPerHeartbeat*delay))
}

// measureLoss records that a member has lost this coordinator, so that its suspicion is
// false.
func (m *Machine) measureLoss() { m.measure(m.cfg.Heartbeat) }

// measureGap records the time since BEATs were sent after which a majority has answered, just before the next ones. If it
// is long, these request a longer lease.
func (m *Machine) measureGap() {
	d := &m.tenure.delays
	answered := func(id election.ID) bool {
		return id == m.cfg.Self || m.peers[id].answersUntil >= m.request.sent+m.probeTimeout()
	}
	if m.cfg.Mode == Available || m.majority(answered) {
		d.renewedAt = m.request.sent
	}
	gap := m.now - d.renewedAt
	d.longestGap = max(d.longestGap, gap)
	m.pace = max(m.pace, m.paceForGap(gap))
}

// paceForGap returns the pace that a time between two renewals requires, 0 if that isn't longer than the usual one.
func (m *Machine) paceForGap(gap election.Tick) election.Tick {
	usual, needed := m.cfg.usualLease(), leasePerGap*min(gap, m.cfg.Lease)
	if needed <= usual {
		return 0
	}
	return min(needed*fullPace/max(usual, 1), m.cfg.longestPace())
}

// shorten makes the timing of a holder shorter at the end of a calm period.
func (m *Machine) shorten() {
	d := &m.tenure.delays
	if m.role < Holder || m.now < d.periodEnd {
		return
	}
	shortest := fullPace
	if m.cfg.adaptive() {
		shortest = m.paceFor(delaysPerHeartbeat * max(d.longest, d.before))
	}
	gap := max(d.longestGap, d.gapBefore-d.gapBefore/8)
	m.pace = min(m.pace, max(m.pace/2, shortest, m.paceForGap(gap)))
	*d = delays{before: d.longest, gapBefore: gap, periodEnd: m.now + m.cfg.CalmPeriod, renewedAt: d.renewedAt}
}

// nextPace returns the pace until the next tenure begins, and with which it does.
func (m *Machine) nextPace(lapsed bool) election.Tick {
	next := max(m.pace, fullPace)
	if lapsed {
		next *= 2
	}
	return min(next, m.cfg.longestPace())
}

// followPace adopts the interval that the coordinator has announced in a BEAT. It is longer
// than the configured one while the coordinator has other settings.
func (m *Machine) followPace(announced election.Tick) {
	pace := fullPace
	switch longest := m.longestHeartbeat(); {
	case announced > m.cfg.Heartbeat:
		pace = (min(announced, longest)*fullPace + m.cfg.Heartbeat - 1) / m.cfg.Heartbeat
	case announced > 0 && m.cfg.adaptive():
		pace = m.paceFor(announced)
	}
	if pace != m.pace && m.role == Follower {
		m.pace = pace
		m.detector.Retime(m.scaled(m.cfg.SuspicionTimeout))
	}
}

// longestHeartbeat returns the longest interval that this process believes: a coordinator
// that renews its grants needs at most half of the lease.
func (m *Machine) longestHeartbeat() election.Tick {
	longest := 100 * m.cfg.Heartbeat
	if m.cfg.Mode != Available {
		longest = min(longest, m.cfg.Lease/2)
	}
	return longest
}
