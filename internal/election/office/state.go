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
	return &c
}

// Encode appends the state to b.
func (m *Machine) Encode(b []byte, now election.Tick) []byte {
	b = append(b, byte(m.role), byte(m.eligibility))
	for _, at := range [...]election.Tick{
		m.campaignAt, m.beatAt, m.claimUntil, m.drainUntil, m.handOverAt, m.eligibleAgainAt, m.probeAt,
	} {
		b = election.AppendMoment(b, at, now)
	}
	for _, n := range [...]uint64{
		uint64(m.coordinator), uint64(m.coordinatorTerm), uint64(m.highestTerm), uint64(m.wonTerm), uint64(m.term), uint64(m.token),
		uint64(m.successor), uint64(m.deadCoordinator), uint64(m.roster.Version), uint64(m.cfg.Life),
	} {
		b = election.AppendNumber(b, n)
	}
	b = election.AppendNumber(b, uint64(m.probeTurn))
	b = m.vacancy.encode(b, now)
	b = election.AppendNumber(b, uint64(m.unacknowledged))
	b = election.AppendNumber(b, uint64(m.contender.id))
	b = election.AppendNumber(b, uint64(m.contender.term))
	b = election.AppendMoment(b, max(m.contender.until, now), now)
	b = election.AppendFlag(b, m.stepDownRequested)
	b = election.AppendFlag(b, m.namedSuccessor)
	for i := range m.peers {
		b = m.peers[i].encode(b, now, m.cfg.StablePeriod)
	}
	b = m.detector.Encode(b, now)
	b = m.ledger.Encode(b, now)
	b = m.support.Encode(b, now)
	return m.inner.Encode(b, now)
}

func (v *vacancy) encode(b []byte, now election.Tick) []byte {
	b = election.AppendMoment(b, max(v.trustUntil, now), now)
	b = election.AppendMoment(b, max(v.innerPausedUntil, now), now)
	b = election.AppendFlag(b, v.proven)
	b = election.AppendFlag(b, v.preVoting)
	b = election.AppendNumber(b, uint64(v.deferredTo))
	return election.AppendNumber(b, uint64(v.attempts))
}

func (p *peer) encode(b []byte, now, stablePeriod election.Tick) []byte {
	b = election.AppendNumber(b, uint64(p.life))
	b = election.AppendNumber(b, uint64(p.resignedTerm))
	b = election.AppendNumber(b, uint64(p.resignedLife))
	b = election.AppendMoment(b, max(p.heardUntil, now), now)
	b = election.AppendMoment(b, max(p.answersUntil, now), now)
	b = election.AppendMoment(b, max(p.followsUntil, now), now)
	b = election.AppendNumber(b, uint64(p.follows))
	b = election.AppendFlag(b, p.oneWay)
	b = election.AppendFlag(b, p.ready)
	b = election.AppendFlag(b, p.refusedClaim)
	b = election.AppendFlag(b, p.ineligible)
	b = election.AppendFlag(b, p.skipped)
	if p.ready {
		b = election.AppendNumber(b, uint64(min(now-p.readySince, stablePeriod)))
	}
	return election.AppendMoment(b, p.notBefore, now)
}
