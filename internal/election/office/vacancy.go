package office

import "github.com/conclave-dev/conclave/internal/election"

// vacancy is what a process knows of the time since it lost its coordinator.
//
// With broken links, an election can elect a process that reaches too few members to hold the office, or never end, and
// a process that doesn't receive the coordinator's BEATs would campaign against it again and again. For example,
// consider members that are linked as 1-2-3-4-5. Member 4 reaches a majority and holds the office. Member 2 reaches a
// majority, too, but it doesn't receive BEATs of 4. Three rules keep the group stable:
//
//   - Pre-vote: a process doesn't start an election, nor continue one, unless it exchanges messages with a majority
//     that follows no coordinator. Member 3 answers the probes of 2 with the name of its coordinator, so 2 waits.
//   - Only the first campaign of a vacancy is an election. If it leads to no coordinator, a process whose pre-vote
//     succeeds claims the office itself: which of these processes gets it is up to the grants.
//   - Attempts that follow are delayed, more each time.
//
// The pre-vote costs a round trip. It is left out where the coordinator is known
// to have ended or resigned, for the first campaign. In Available mode no majority is
// needed: there, the process waits while another member hears the coordinator (available.go).
type vacancy struct {
	// campaignAt is when a follower campaigns, Never if it doesn't.
	campaignAt election.Tick
	// lost is the coordinator whose failure caused the vacancy, or None. lostLife is its incarnation, 0 if
	// that is known to have ended.
	lost     election.ID
	lostLife uint32
	// successor is in favor of whom the last coordinator resigned, or None. It can claim the office without an election.
	successor election.ID
	// since is when it began.
	since election.Tick
	// trustUntil is how long this process relies on what it was told about the other
	// members, before it relies on their answers to its probes.
	trustUntil election.Tick
	// proven: the last coordinator is known to have ended, or it resigned.
	proven bool
	// preVoting: the process campaigns as soon as its pre-vote succeeds.
	preVoting bool
	// attempts counts elections and claims of this process, up to maxAttempts.
	attempts int
	// deferredTo is the process for whose claim this one postponed its campaign.
	deferredTo election.ID
	// innerPausedUntil delays the timers of the inner election.
	innerPausedUntil election.Tick
	// roundTrip is how long the members take to answer if grants couldn't be renewed for that reason: see awaitRenewable.
	roundTrip election.Tick
}

// maxAttempts limits the delay of further attempts, and the number of states.
const maxAttempts = 5

// isNamedSuccessor reports whether the last coordinator resigned in favor of this process, which hasn't
// tried to succeed it yet.
func (m *Machine) isNamedSuccessor() bool {
	return m.vacancy.successor == m.cfg.Self && m.vacancy.attempts == 0
}

func (v *vacancy) attempt() { v.attempts = min(v.attempts+1, maxAttempts) }

// deadCoordinator is the coordinator whose failure caused the vacancy, unless it has sent something since.
func (m *Machine) deadCoordinator() election.ID {
	if m.detector.Suspects(m.vacancy.lost) {
		return m.vacancy.lost
	}
	return election.None
}

// newVacancy returns a vacancy that begins now. The members have two heartbeats to answer the first probes, unless the
// coordinator has fallen silent: then the members may have, too.
func (s *state) newVacancy(dead election.ID, proven, silent bool) vacancy {
	v := s.noVacancy()
	v.lost, v.proven = dead, proven
	if dead != election.None && !proven {
		v.lostLife = s.peers[dead].life
	}
	if !silent {
		v.trustUntil += 2 * s.cfg.Heartbeat * election.Tick(s.probeTurns())
	}
	return v
}

// noVacancy returns the state while there is a coordinator.
func (s *state) noVacancy() vacancy {
	return vacancy{since: s.now, campaignAt: election.Never, trustUntil: s.now, innerPausedUntil: s.now}
}

// backoff is the delay of the next attempt: none for the first two, and then between half a heartbeat and sixteen. The
// processes must not try again at the same moment, so half of the delay depends on the process: on its life, too,
// because IDs are local to each agent. It also depends on the term. Otherwise two processes whose claims end each other
// would try again after equal times forever.
func (m *Machine) backoff() election.Tick {
	if m.vacancy.attempts <= 1 {
		return 0
	}
	longest := m.cfg.Heartbeat << (m.vacancy.attempts - 2)
	const odd = 0x9e3779b97f4a7c15
	mixed := (uint64(m.cfg.Life)<<32 ^ uint64(m.cfg.Self)<<24 ^ uint64(max(m.claimedTerm, m.highestTerm))) * odd
	mixed = (mixed ^ mixed>>32) * odd // the high bits have an effect on the low ones
	return longest/2 + election.Tick(mixed>>1)%(longest/2+1)
}

// preVoteSucceeds reports whether this process may campaign, as far as the others say. A majority exchanges messages
// with it, and follows no coordinator.
func (m *Machine) preVoteSucceeds() bool {
	if m.cfg.Mode == Available {
		return !m.awaitsWitnesses()
	}
	return m.majority(func(id election.ID) bool {
		p := &m.peers[id]
		return p.answersUntil > m.now && !m.follows(p)
	})
}

// follows reports whether a peer follows a coordinator that may be alive.
func (m *Machine) follows(p *peer) bool {
	ended := m.vacancy.proven && p.follows == m.deadCoordinator()
	return p.followsUntil > m.now && p.follows != election.None && p.follows != m.cfg.Self && !ended
}

// majorityAnswers reports whether this process exchanges messages with a majority, or did some time before.
func (s *state) majorityAnswers(before election.Tick) bool {
	return s.majority(func(id election.ID) bool { return s.peers[id].answersUntil > s.now-before })
}

// majority reports whether ok holds for a majority of the voters of every member list in force.
func (s *state) majority(ok func(election.ID) bool) bool {
	votes := func(id election.ID) bool { return !s.peers[id].abstains && ok(id) }
	return majorityOf(s.roster, votes) && (s.support.Settled() ||
		majorityOf(s.roster.Previous, func(id election.ID) bool { return s.roster.Continues(id) && votes(id) }))
}

func majorityOf(roster *election.Roster, ok func(election.ID) bool) bool {
	n := 0
	for _, member := range roster.Ring() {
		if ok(member.ID) {
			n++
		}
	}
	return n >= roster.Majority()
}

// couldHold reports whether this process could hold the office, as far as it knows.
func (m *Machine) couldHold() bool {
	if m.cfg.Mode == Available {
		return true
	}
	trusts := m.coordinator != election.None || m.now < m.vacancy.trustUntil
	return m.majorityAlive() && (trusts || m.majorityAnswers(0))
}

// retryPreVote campaigns if a pre-vote that failed before succeeds now.
func (m *Machine) retryPreVote() {
	if m.vacancy.preVoting && m.preVoteSucceeds() {
		m.vacancy.campaignAt = m.now + m.campaignDelay() + m.backoff()
		m.vacancy.preVoting = false
	}
}
