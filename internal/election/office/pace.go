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

// pace is how many times as long as usual leases are, in thousandths.
type pace election.Tick

// fullPace stands for the usual timing.
const fullPace pace = 1000

// of returns what is in force of a usual duration.
func (p pace) of(d election.Tick) election.Tick {
	return d * election.Tick(p) / election.Tick(fullPace)
}

// paceOf returns the pace at which a usual duration becomes another one, or a little longer.
func paceOf(d, usual election.Tick) pace {
	return pace((d*election.Tick(fullPace) + usual - 1) / usual)
}

// leasePerAge is how many times as long as the age of the last renewal, just before the next one, a lease is, at least.
const leasePerAge = 3

// usualLease is the lease while nothing is late.
func (c *Config) usualLease() election.Tick { return cmp.Or(c.UsualLease, c.Lease) }

// stretches reports whether leases grow while renewals are late.
func (c *Config) stretches() bool { return c.longestPace() > fullPace }

// longestPace is the pace at which the lease is the longest one. In Available mode, there are no grants, and a process
// that has stood still can't know after which time the others have another coordinator: see stoodStill.
func (c *Config) longestPace() pace {
	if c.Mode == Available || c.usualLease() <= 0 {
		return fullPace
	}
	return max(fullPace, pace(c.Lease*election.Tick(fullPace)/c.usualLease()))
}

// paceForLease returns the pace at which the lease has at least this length, 0 if that isn't longer than the usual one.
func (c *Config) paceForLease(lease election.Tick) pace {
	if lease <= c.usualLease() {
		return 0
	}
	return min(paceOf(lease, c.usualLease()), c.longestPace())
}

// nextPace returns the pace until the next tenure begins, and with which it does, after one with pace p.
func (c *Config) nextPace(p pace, lapsed bool) pace {
	if lapsed {
		p *= 2
	}
	return min(p, c.longestPace())
}

// suspicionTimeout returns after which silence the coordinator suspects others, and is suspected. If grants have
// expired, there is no reason to wait any longer.
func (c *Config) suspicionTimeout(p pace) election.Tick {
	timeout := p.of(c.SuspicionTimeout)
	if c.Mode == Available {
		return timeout
	}
	return min(timeout, max(c.SuspicionTimeout, c.Lease))
}

// announcedPace returns the pace that follows from the interval of heartbeats that a coordinator has announced. It is
// longer than the configured one while the coordinator has other settings. A coordinator that renews its grants needs
// at most half of the lease.
func (c *Config) announcedPace(interval election.Tick) pace {
	longest := 100 * c.Heartbeat
	if c.Mode != Available {
		longest = min(longest, c.Lease/2)
	}
	if interval <= c.Heartbeat {
		return fullPace
	}
	return paceOf(min(interval, longest), c.Heartbeat)
}

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
func (c *Config) newDelays(p pace, now election.Tick) delays {
	d := delays{periodEnd: now + c.CalmPeriod, renewedAt: now}
	if p > fullPace {
		d.oldestBefore = p.of(c.usualLease()) / leasePerAge
	}
	return d
}

// endPeriod begins another calm period, and returns the pace for it.
func (d *delays) endPeriod(p pace, c *Config, now election.Tick) pace {
	oldest := max(d.oldest, d.oldestBefore-d.oldestBefore/8)
	*d = delays{oldestBefore: oldest, periodEnd: now + c.CalmPeriod, renewedAt: d.renewedAt}
	return min(p, max(fullPace, c.paceForLease(leasePerAge*oldest)))
}

func (d *delays) encode(b []byte, now election.Tick) []byte {
	for _, delay := range [...]election.Tick{d.oldest, d.oldestBefore} {
		b = election.AppendNumber(b, uint64(delay))
	}
	b = election.AppendMoment(b, d.renewedAt, now)
	return election.AppendMoment(b, d.periodEnd, now)
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

// SuspicionTimeoutInForce returns after which silence the coordinator suspects others, and is suspected, as far as this
// process knows.
func (s *state) SuspicionTimeoutInForce() election.Tick { return s.cfg.suspicionTimeout(s.pace) }

// leaseInForce returns the usual lease, or the longer one that late renewals require: that for which this process
// requests grants. It is 0 in Available mode.
func (s *state) leaseInForce() election.Tick {
	if s.cfg.Mode == Available {
		return 0
	}
	return min(s.pace.of(s.cfg.usualLease()), s.cfg.Lease)
}

// measureSilence records that the last coordinator was late and not dead: it has sent a message.
func (m *Machine) measureSilence(from election.ID, life uint32) {
	if s := &m.tenure.silenced; from == s.id && life == s.life && m.now < s.until {
		m.pace = m.cfg.nextPace(m.pace, true)
		d := &m.tenure.delays
		d.oldestBefore = max(d.oldestBefore, m.pace.of(m.cfg.usualLease())/leasePerAge)
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
	m.pace = max(m.pace, m.cfg.paceForLease(leasePerAge*age))
}

// recordGrant notes that a member has granted a BEAT for a lease. If that has ended on the way, a claim requests longer
// ones.
func (s *state) recordGrant(from election.ID, sent, lease election.Tick) {
	if !s.cfg.stretches() && !s.hasObservers() {
		return
	}
	s.peers[from].granted = max(s.peers[from].granted, sent)
	if s.role == Candidate && s.now >= sent+lease-grants.Margin(lease) {
		s.pace = max(s.pace, s.cfg.paceForLease(leasePerAge*(s.now-sent)))
	}
}
