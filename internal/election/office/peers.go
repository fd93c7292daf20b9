package office

import "github.com/conclave-dev/conclave/internal/election"

// peer is the state that this process tracks of another one.
type peer struct {
	// life is the peer's incarnation, as of its last message.
	life uint32
	// resignedTerm is the last term that the incarnation resignedLife gave up.
	resignedTerm election.Term
	resignedLife uint32
	// ready: the peer reported that it could take the office at once. It has reported so since readySince.
	ready      bool
	readySince election.Tick
	// heardUntil is how long the last message from the peer counts as a sign of life against the word of the coordinator.
	heardUntil election.Tick
	// answersUntil is how long the last answer of the peer proves that messages pass
	// in both directions. For this process itself it is Never.
	answersUntil election.Tick
	// follows is the coordinator that the peer named in its last probe or answer,
	// which counts until followsUntil. Its term is 0 if that message didn't name it.
	follows      election.ID
	followsTerm  election.Term
	followsUntil election.Tick
	// oneWay: the peer, as a coordinator, didn't receive what this process sent (Available).
	oneWay bool
	// refusedClaim: the peer refused the present claim permanently.
	refusedClaim bool
	// bound is at least each term that the peer has granted, except for the terms of
	// this process, as the peer reported last.
	bound election.Term
	// granted is when the last BEAT was sent that the peer has granted, if leases can grow or there are observers:
	// see pace.go and rest.go. asked is when the coordinator sent this observer the last BEAT.
	granted, asked election.Tick
	// claimedUntil is the end of the lease after the last claim of the peer.
	claimedUntil election.Tick
	// refusedUntil is how long a BEAT of the peer in refusedTerm is refused: see continuesInLowerTerm.
	refusedTerm  election.Term
	refusedLife  uint32
	refusedUntil election.Tick
	// raisesAgainAt and raises limit the requests for a higher term: see raiseTerm.
	raisesAgainAt election.Tick
	raises        int
	// ineligible is the peer's eligibility as the peer itself or the coordinator reported it last.
	ineligible bool
	// flaps: see tenures.go. startedAt is when this process first heard from the peer's incarnation.
	flaps     bool
	startedAt election.Tick
	// abstains: the peer doesn't vote under its list.
	abstains bool
	// skipped: the inner election leaves the peer out because it is ineligible. That is a separate fact: a peer that
	// becomes ineligible while there is a coordinator isn't skipped until the office becomes vacant.
	skipped bool
	// notBefore is the earliest moment for another hand-over to the peer, after one that it didn't complete.
	notBefore election.Tick
}

// hasResigned reports whether the sender of a BEAT has since given up the term of that BEAT.
func (p *peer) hasResigned(beat *election.Message) bool {
	return beat.Hold.Life == p.resignedLife && beat.Term <= p.resignedTerm
}

// growPeers makes room for every process from which messages are accepted: see isMember.
func (s *state) growPeers() {
	top := s.roster.Top()
	if s.roster.Previous != nil {
		top = max(top, s.roster.Previous.Top())
	}
	for election.ID(len(s.peers)) <= top {
		s.peers = append(s.peers, peer{
			heardUntil: s.now, answersUntil: -election.Never, followsUntil: s.now, claimedUntil: s.now,
			raisesAgainAt: s.now, refusedUntil: s.now, startedAt: s.now,
		})
	}
	s.peers[s.cfg.Self].answersUntil = election.Never
}

// eachMember visits the members of the list and, until the list has settled, those of the previous one.
func (s *state) eachMember(visit func(election.ID)) {
	for _, other := range s.roster.Ring() {
		visit(other.ID)
	}
	if s.support.Settled() {
		return
	}
	for _, other := range s.roster.Previous.Ring() {
		if !s.roster.Has(other.ID) {
			visit(other.ID)
		}
	}
}

// isAlone reports whether the lists in force have no other process.
func (s *state) isAlone() bool {
	alone := true
	s.eachMember(func(id election.ID) { alone = alone && id == s.cfg.Self })
	return alone
}

// isMember reports whether id is on the member list or on the previous one.
func (s *state) isMember(id election.ID) bool {
	return s.roster.Has(id) || s.roster.Previous != nil && s.roster.Previous.Has(id)
}
