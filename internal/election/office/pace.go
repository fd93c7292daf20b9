package office

import "github.com/conclave-dev/conclave/internal/election"

// The coordinator adapts the timing of the group to the delays that it measures: while
// the network and the machines are quiet, it sends BEATs more often, announces that with
// each BEAT, and requests grants for a shorter lease. Its followers suspect it sooner
// accordingly. So a silent coordinator is replaced sooner.
//
// The pace is the share of the configured timing that is in force: the interval of
// heartbeats, the suspicion timeout of followers, and the lease in Majority are all
// shorter in proportion. It never exceeds the configured timing, and with the smallest
// pace heartbeats have the interval MinHeartbeat.
//
//   - It grows at once. An answer, or a timer of the coordinator, that is late by more than
//     a quarter of a heartbeat makes the next heartbeat longer. The same happens when a
//     member has lost the coordinator, because that suspicion is false.
//   - It shrinks slowly: at most by half per calm period, and only to what the delays of
//     this period and the one before allow.
//   - Each tenure begins with the configured timing, and so do claims and everything that
//     happens while there is no coordinator. The coordinator suspects others after the
//     configured timeout, because nothing is gained if it does so sooner.
//   - In Strict the lease isn't shortened.
//
// No rule of safety depends on the pace: each grant names its lease (package grants). A
// process that follows no announcements, because it has other bounds or is older, only
// waits longer.

// fullPace stands for the configured timing. A pace is in thousandths.
const fullPace election.Tick = 1000

// delaysPerHeartbeat is how many times as long as the longest delay a heartbeat is. The
// suspicion timeout is four heartbeats by default. So a delay that leads to a suspicion
// is twelve times as long as any other one of the last calm periods.
const delaysPerHeartbeat = 4

// delays are those that a holder has measured.
type delays struct {
	// longest is the longest one of this calm period, which ends at periodEnd, and
	// before that of the period before.
	longest, before election.Tick
	periodEnd       election.Tick
}

func (d *delays) encode(b []byte, now election.Tick) []byte {
	b = election.AppendNumber(b, uint64(d.longest))
	b = election.AppendNumber(b, uint64(d.before))
	return election.AppendMoment(b, d.periodEnd, now)
}

// adaptive reports whether this process adapts its timing.
func (c *Config) adaptive() bool { return 0 < c.MinHeartbeat && c.MinHeartbeat < c.Heartbeat }

// scaled returns the share of a configured duration that is in force.
func (m *Machine) scaled(d election.Tick) election.Tick { return d * m.pace / fullPace }

// HeartbeatInForce returns the interval at which the coordinator sends BEATs now, as far
// as this process knows.
func (m *Machine) HeartbeatInForce() election.Tick { return m.scaled(m.cfg.Heartbeat) }

// requestedLease returns the lease for which this process requests grants.
func (m *Machine) requestedLease() election.Tick {
	switch m.cfg.Mode {
	case Available:
		return 0
	case Majority:
		return min(m.scaled(m.cfg.Lease), m.cfg.Lease)
	default:
		return m.cfg.Lease
	}
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

// shorten makes the heartbeats of a holder shorter at the end of a calm period.
func (m *Machine) shorten() {
	d := &m.tenure.delays
	if m.role < Holder || !m.cfg.adaptive() || m.now < d.periodEnd {
		return
	}
	m.pace = min(m.pace, max(m.pace/2, m.paceFor(delaysPerHeartbeat*max(d.longest, d.before))))
	*d = delays{before: d.longest, periodEnd: m.now + m.cfg.CalmPeriod}
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
