package office

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// Clone returns an independent copy.
func (m *Machine) Clone() election.Machine {
	c := *m
	c.inner = m.inner.Clone()
	c.peers = slices.Clone(m.peers)
	c.detector = m.detector.Clone()
	c.support = m.support.Clone()
	c.recovery.unaware = m.recovery.unaware.Clone()
	return &c
}

// Encode appends the state to b.
func (m *Machine) Encode(b []byte, now election.Tick) []byte {
	b = m.encodeRole(b, now)
	b = append(b, byte(m.eligibility))
	b = election.AppendMoment(b, m.eligibleAgainAt, now)
	b = election.AppendMoment(b, max(m.yieldsUntil, now), now)
	for _, n := range [...]uint64{
		uint64(m.coordinator), uint64(m.coordinatorTerm), uint64(m.highestTerm), uint64(m.wonTerm), uint64(m.claimedTerm),
		uint64(m.roster.Version), uint64(m.cfg.Life),
	} {
		b = election.AppendNumber(b, n)
	}
	b = m.tenures.encode(b, &m.cfg, now)
	b = m.vacancy.encode(b, now)
	b = m.recovery.encode(b, now)
	b = m.available.encode(b)
	b = m.contender.encode(b, now)
	b = election.AppendNumber(b, uint64(min(now-m.vacancy.since, 2*m.cfg.SuspicionTimeout)))
	b = election.AppendNumber(b, uint64(m.pace))
	b = election.AppendMoment(b, max(m.drainsUntil, now), now)
	b = m.request.encode(b, now)
	b = m.tenure.delays.encode(b, now)
	b = m.tenure.silenced.encode(b, now)
	for i := range m.peers {
		b = m.peers[i].encode(b, &m.cfg, now, m.probePause())
	}
	b = m.detector.Encode(b, now)
	b = m.ledger.Encode(b, now)
	b = m.support.Encode(b, now)
	return m.inner.Encode(b, now)
}

// encodeRole appends what exists in the role.
func (m *Machine) encodeRole(b []byte, now election.Tick) []byte {
	b = append(b, byte(m.role))
	b = election.AppendNumber(b, uint64(m.term))
	switch m.role {
	case Follower:
		b = election.AppendMoment(b, m.probes.at, now)
		return election.AppendNumber(b, uint64(m.probes.turn))
	case Candidate:
		b = election.AppendMoment(b, m.claimUntil(), now)
		b = election.AppendMoment(b, m.candidacy.slowAt, now)
		b = election.AppendFlag(b, m.candidacy.waits)
	case Holder:
	case Draining:
		b = election.AppendMoment(b, m.tenure.drainUntil, now)
		b = election.AppendNumber(b, uint64(m.tenure.successor))
		b = election.AppendFlag(b, m.tenure.stepDownRequested)
	}
	b = election.AppendMoment(b, m.beatAt, now)
	b = election.AppendNumber(b, uint64(m.tenure.token))
	return election.AppendNumber(b, uint64(m.probes.turn))
}

func (a *available) encode(b []byte) []byte {
	return election.AppendNumber(b, uint64(a.unacknowledged))
}

func (c *contender) encode(b []byte, now election.Tick) []byte {
	b = election.AppendNumber(b, uint64(c.id))
	b = election.AppendNumber(b, uint64(c.term))
	b = election.AppendMoment(b, max(c.askedUntil, now), now)
	return election.AppendMoment(b, max(c.until, now), now)
}

func (v *vacancy) encode(b []byte, now election.Tick) []byte {
	b = election.AppendMoment(b, v.campaignAt, now)
	b = election.AppendNumber(b, uint64(v.lost))
	b = election.AppendNumber(b, uint64(v.lostLife))
	b = election.AppendNumber(b, uint64(v.successor))
	b = election.AppendMoment(b, max(v.trustUntil, now), now)
	b = election.AppendMoment(b, max(v.innerPausedUntil, now), now)
	b = election.AppendFlag(b, v.proven)
	b = election.AppendFlag(b, v.preVoting)
	b = election.AppendNumber(b, uint64(v.deferredTo))
	b = election.AppendNumber(b, uint64(v.roundTrip))
	return election.AppendNumber(b, uint64(v.attempts))
}

func (p *peer) encode(b []byte, c *Config, now, pause election.Tick) []byte {
	b = election.AppendNumber(b, uint64(p.life))
	b = election.AppendNumber(b, uint64(p.resignedTerm))
	b = election.AppendNumber(b, uint64(p.resignedLife))
	b = election.AppendMoment(b, max(p.heardUntil, now), now)
	b = election.AppendMoment(b, p.answersUntil, now-pause)
	b = election.AppendMoment(b, max(p.followsUntil, now), now)
	b = election.AppendMoment(b, max(p.claimedUntil, now), now)
	b = election.AppendNumber(b, uint64(p.refusedTerm))
	b = election.AppendNumber(b, uint64(p.refusedLife))
	b = election.AppendMoment(b, max(p.refusedUntil, now), now)
	b = election.AppendMoment(b, max(p.raisesAgainAt, now), now)
	b = election.AppendNumber(b, uint64(p.raises))
	b = election.AppendNumber(b, uint64(p.bound))
	b = election.AppendNumber(b, uint64(p.follows))
	b = election.AppendNumber(b, uint64(p.followsTerm))
	b = election.AppendFlag(b, p.oneWay)
	b = election.AppendFlag(b, p.ready)
	b = election.AppendFlag(b, p.refusedClaim)
	b = election.AppendFlag(b, p.ineligible)
	b = election.AppendFlag(b, p.abstains)
	b = election.AppendFlag(b, p.flaps)
	b = election.AppendNumber(b, uint64(min(now-p.startedAt, c.longTenure()/2)))
	b = election.AppendFlag(b, p.skipped)
	if p.granted > 0 {
		b = election.AppendMoment(b, p.granted, now)
	}
	if p.asked > 0 {
		b = election.AppendMoment(b, p.asked, now)
	}
	if p.ready {
		b = election.AppendNumber(b, uint64(min(now-p.readySince, c.StablePeriod)))
	}
	return election.AppendMoment(b, p.notBefore, now)
}
