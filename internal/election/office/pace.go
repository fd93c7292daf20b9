package office

import (
	"cmp"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// The coordinator makes leases longer while renewals are late, up to the longest one. So a group on
// an overloaded machine keeps its coordinator, and notices later that one has fallen silent. The pace
// is how many times as long as usual the lease and the suspicion timeout are.
//
//   - The lease is at least leasePerAge times as long as the longest time after which a majority has answered a BEAT,
//     and the next one has been sent. In Available mode there are no leases, so nothing grows.
//   - If a coordinator loses its grants nevertheless, the next tenure has twice the pace. Otherwise it
//     would end in the same way. If it falls silent, the next coordinator has twice the pace as soon as it
//     hears from that process, which had only been late. A dead one says nothing about delays.
//
// The pace grows at once. It shrinks slowly: at most by half per calm period. A late renewal counts for
// about a minute, because load comes in waves. Heartbeats remain as frequent as they are.
//
// No rule of safety depends on the pace: each grant names its lease (package grants). A
// process that doesn't follow announcements suspects a coordinator sooner.

// fullPace stands for the usual timing. A pace is in thousandths.
const fullPace election.Tick = 1000

// leasePerAge is how many times as long as the age of the last renewal, just before the next one, a lease is, at least.
const leasePerAge = 3

// delays are those that a holder has measured.
type delays struct {
	// oldest is the greatest age of a renewal in this calm period, which ends at periodEnd, and oldestBefore
	// what the earlier periods still count for: an eighth less with each one.
	oldest, oldestBefore election.Tick
	periodEnd            election.Tick
	// renewedAt is when the last BEATs were sent that a majority has granted.
	renewedAt election.Tick
}

// newDelays returns the delays at the start of a tenure: those that its pace would suit.
func (m *Machine) newDelays() delays {
	d := delays{periodEnd: m.now + m.cfg.CalmPeriod, renewedAt: m.now}
	if m.pace > fullPace {
		d.oldestBefore = m.scaled(m.cfg.usualLease()) / leasePerAge
	}
	return d
}

func (d *delays) encode(b []byte, now election.Tick) []byte {
	for _, delay := range [...]election.Tick{d.oldest, d.oldestBefore} {
		b = election.AppendNumber(b, uint64(delay))
	}
	b = election.AppendMoment(b, d.renewedAt, now)
	return election.AppendMoment(b, d.periodEnd, now)
}

// usualLease is the lease while nothing is late.
func (c *Config) usualLease() election.Tick { return cmp.Or(c.UsualLease, c.Lease) }

// stretches reports whether leases grow while renewals are late.
func (c *Config) stretches() bool { return c.longestPace() > fullPace }

// longestPace is the pace at which the lease is the longest one. In Available mode, there are no grants, and a process
// that has stood still can't know after which time the others have another coordinator: see stoodStill.
func (c *Config) longestPace() election.Tick {
	if c.Mode == Available || c.usualLease() <= 0 {
		return fullPace
	}
	return max(fullPace, c.Lease*fullPace/c.usualLease())
}

// scaled returns what is in force of a usual duration.
func (m *Machine) scaled(d election.Tick) election.Tick { return d * m.pace / fullPace }

// SuspicionTimeoutInForce returns after which silence the coordinator suspects others, and is suspected, as far as this
// process knows. If grants have expired, there is no reason to wait any longer.
func (m *Machine) SuspicionTimeoutInForce() election.Tick {
	timeout := m.scaled(m.cfg.SuspicionTimeout)
	if m.cfg.Mode == Available {
		return timeout
	}
	return min(timeout, max(m.cfg.SuspicionTimeout, m.cfg.Lease))
}

// announced returns the interval of heartbeats for which followers set their suspicion timeout. It is longer than the
// real one if renewals have been late.
func (m *Machine) announced(interval election.Tick) election.Tick {
	return max(interval, m.scaled(m.cfg.Heartbeat))
}

// requestedLease returns the lease for which this process requests grants.
func (m *Machine) requestedLease() election.Tick {
	if m.cfg.Mode == Available {
		return 0
	}
	return m.leaseInForce()
}

// leaseInForce returns the usual lease, or the longer one that late renewals require.
func (m *Machine) leaseInForce() election.Tick {
	return min(m.scaled(m.cfg.usualLease()), m.cfg.Lease)
}

// silenced is a coordinator that fell silent before this one, until it has sent a message or the longest lease has
// passed.
type silenced struct {
	id    election.ID
	life  uint32
	until election.Tick
}

func (s *silenced) encode(b []byte, now election.Tick) []byte {
	b = election.AppendNumber(b, uint64(s.id))
	b = election.AppendNumber(b, uint64(s.life))
	return election.AppendMoment(b, max(s.until, now), now)
}

// measureSilence records that the last coordinator was late and not dead: it has sent a message.
func (m *Machine) measureSilence(from election.ID, life uint32) {
	if s := &m.tenure.silenced; from == s.id && life == s.life && m.now < s.until {
		m.pace = m.nextPace(true)
		m.tenure.delays.oldestBefore = max(m.tenure.delays.oldestBefore, m.scaled(m.cfg.usualLease())/leasePerAge)
		*s = silenced{}
	}
}

// measureAge records how long ago the last BEATs were sent that a majority has granted, just before the next ones. If
// that is long, these request a longer lease.
func (m *Machine) measureAge() {
	d := &m.tenure.delays
	if !m.cfg.stretches() {
		return
	}
	for id := range m.peers {
		sent := m.peers[id].granted
		granted := func(other election.ID) bool { return other == m.cfg.Self || m.peers[other].granted >= sent }
		if sent > d.renewedAt && m.majority(granted) {
			d.renewedAt = sent
		}
	}
	age := min(m.now-d.renewedAt, m.cfg.Lease)
	d.oldest = max(d.oldest, age)
	m.pace = max(m.pace, m.paceForLease(leasePerAge*age))
}

// paceForLease returns the pace at which the lease has at least this length, 0 if that isn't longer than the usual one.
func (m *Machine) paceForLease(lease election.Tick) election.Tick {
	usual := m.cfg.usualLease()
	if lease <= usual {
		return 0
	}
	return min((lease*fullPace+usual-1)/usual, m.cfg.longestPace())
}

// recordGrant notes that a member has granted a BEAT for a lease. If that has ended on the way, a claim requests longer
// ones.
func (m *Machine) recordGrant(from election.ID, sent, lease election.Tick) {
	if !m.cfg.stretches() {
		return
	}
	m.peers[from].granted = max(m.peers[from].granted, sent)
	if m.role == Candidate && m.now >= sent+lease-grants.Margin(lease) {
		m.pace = max(m.pace, m.paceForLease(leasePerAge*(m.now-sent)))
	}
}

// shorten makes the timing of a holder shorter at the end of a calm period.
func (m *Machine) shorten() {
	d := &m.tenure.delays
	if m.role < Holder || m.now < d.periodEnd {
		return
	}
	oldest := max(d.oldest, d.oldestBefore-d.oldestBefore/8)
	m.pace = min(m.pace, max(m.pace/2, fullPace, m.paceForLease(leasePerAge*oldest)))
	*d = delays{oldestBefore: oldest, periodEnd: m.now + m.cfg.CalmPeriod, renewedAt: d.renewedAt}
}

// nextPace returns the pace until the next tenure begins, and with which it does.
func (m *Machine) nextPace(lapsed bool) election.Tick {
	next := m.pace
	if lapsed {
		next *= 2
	}
	return min(next, m.cfg.longestPace())
}

// followPace adopts the interval that the coordinator has announced in a BEAT. It is longer
// than the configured one while the coordinator has other settings.
func (m *Machine) followPace(announced election.Tick) {
	pace := fullPace
	if announced > m.cfg.Heartbeat {
		pace = (min(announced, m.longestHeartbeat())*fullPace + m.cfg.Heartbeat - 1) / m.cfg.Heartbeat
	}
	if pace != m.pace && m.role == Follower {
		m.pace = pace
		m.detector.Retime(m.SuspicionTimeoutInForce())
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
