package office

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// Forgetful reports whether this process doesn't vote or lead under its list, because that names another state
// directory: an earlier process, whose directory was lost, may have granted and claimed terms of the list. A
// later list, or a later publication of this one, names the present directory.
func (s *state) Forgetful() bool {
	list := s.roster
	if !list.Has(s.cfg.Self) && list.Previous != nil {
		list = list.Previous // until the list has settled, its vote counts for the previous one
	}
	return list.Has(s.cfg.Self) && list.Identity(s.cfg.Self) != s.cfg.Identity
}

// updateForgetful makes this process ineligible while it is forgetful.
func (m *Machine) updateForgetful(out *election.Output) {
	forgets := m.Forgetful()
	m.peers[m.cfg.Self].abstains = forgets
	switch {
	case forgets && m.eligibility < forgetful:
		m.becomeIneligible(forgetful, out)
	case m.eligibility == forgetful:
		m.becomeEligible(out)
	}
}

// Reserved returns the highest term that this process may grant or claim.
func (s *state) Reserved() election.Term { return s.ledger.Reserved() }

// Wanted returns the term that the agent should store as the reservation, and then report with the input Reserved.
func (s *state) Wanted() election.Term {
	if s.cfg.Mode == Available {
		next, reserved := s.nextTerm(), s.ledger.Reserved()
		if !s.claimable(next) || next+claimsReserved/2 <= reserved {
			return reserved
		}
		return min(next+claimsReserved, election.LastTerm(s.roster.Version))
	}
	used := election.Term(0)
	if s.coordinator == election.None {
		used, _ = s.majorityBound()
	}
	if !s.claimable(used) {
		used = 0
	}
	return s.ledger.Wanted(used)
}

// claimsReserved is how many terms a process reserves for its claims in Available mode. It skips as many with each
// restart, because no memory survives there.
const claimsReserved = 4

// UsedTerm returns the highest term that this process has granted or claimed. It may be of a newer list, which a false
// claim has named. In Available mode there are no grants, but the terms of coordinators.
func (s *state) UsedTerm() election.Term {
	if s.cfg.Mode == Available {
		return max(s.claimedTerm, s.termInUse())
	}
	return max(s.ledger.HighestGranted(), s.claimedTerm)
}

// recordReport records what a member reports with each answer: its list, and what it has granted.
func (s *state) recordReport(answer *election.Message) {
	p := &s.peers[answer.From]
	p.answersUntil, p.bound = s.now+s.probeTimeout(), answer.Hold.HighestGranted
	s.support.RecordAdoption(answer.From, answer.Hold.Version)
	if answer.Kind == election.Deny {
		p.bound = max(p.bound, answer.Term)
	}
}

// majorityBound returns the lowest term that a majority of every list in force has not
// exceeded. It returns false if the recent answers don't tell. In Available mode there are no grants.
func (s *state) majorityBound() (election.Term, bool) {
	if s.cfg.Mode == Available {
		return 0, false
	}
	recent := func(id election.ID) (election.Term, bool) {
		if id == s.cfg.Self {
			return s.ledger.HighestGranted(), true
		}
		return s.peers[id].bound, s.peers[id].answersUntil > s.now && !s.peers[id].abstains
	}
	bound, ok := grants.LowestBound(s.roster, s.roster.Majority(), recent)
	if !ok || s.support.Settled() {
		return bound, ok
	}
	continuing := func(id election.ID) (election.Term, bool) {
		reported, ok := recent(id)
		return reported, ok && s.roster.Continues(id)
	}
	previous, ok := grants.LowestBound(s.roster.Previous, s.roster.Previous.Majority(), continuing)
	return max(bound, previous), ok
}
