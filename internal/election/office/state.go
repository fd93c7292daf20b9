package office

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// Clone is an independent copy.
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
	b = append(b, byte(m.role))
	for _, at := range [...]election.Tick{
		m.campaignAt, m.beatAt, m.claimUntil, m.drainUntil, m.handOverAt, m.standAgain, m.hailAt,
	} {
		b = election.AppendMoment(b, at, now)
	}
	for _, n := range [...]uint64{
		uint64(m.leader), uint64(m.leaderTerm), uint64(m.seen), uint64(m.won), uint64(m.term), uint64(m.token),
		uint64(m.successor), uint64(m.dead), uint64(m.roster.Version), uint64(m.cfg.Life),
	} {
		b = election.AppendNumber(b, n)
	}
	b = election.AppendNumber(b, uint64(m.turn))
	b = election.AppendFlag(b, m.withdrawn)
	b = election.AppendFlag(b, m.appDead)
	b = election.AppendFlag(b, m.leaving)
	b = election.AppendFlag(b, m.aside)
	b = election.AppendFlag(b, m.heir)
	for i := range m.peers {
		p := &m.peers[i]
		b = election.AppendNumber(b, uint64(p.life))
		b = election.AppendNumber(b, uint64(p.resigned))
		b = election.AppendNumber(b, uint64(p.resignedLife))
		b = election.AppendMoment(b, p.heardUntil, now)
		b = election.AppendFlag(b, p.standing)
		b = election.AppendFlag(b, p.barred)
		b = election.AppendFlag(b, p.away)
		b = election.AppendFlag(b, p.passed)
		if p.standing {
			b = election.AppendNumber(b, uint64(min(now-p.standingSince, m.cfg.Stable)))
		}
		b = election.AppendMoment(b, p.notBefore, now)
	}
	b = m.detector.Encode(b, now)
	b = m.ledger.Encode(b, now)
	b = m.support.Encode(b, now)
	return m.inner.Encode(b, now)
}
