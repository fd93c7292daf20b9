package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// The highest process claims terms that were granted before, or that are out of reach, again and again. The next
// process doesn't wait for it.
func TestClaimThatCannotBeGrantedDoesNotDelayCampaign(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, claimed := range []election.Term{term(5), election.LastTerm(1)} {
			h := newFollower(t, mode, nil)
			h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
			for range stagger {
				h.receive(5, election.Beat, claimed, election.Hold{})
				h.advance(1)
			}
			expect.Equalf(t, h.countEvents(self, election.Started), 1,
				"claims of term %d: elections after the campaign delay", claimed)
		}
	})
}

// The end of the coordinator is proven: a process campaigns without a pre-vote.
// After mere silence it needs the answers of a majority that follows no coordinator.
func TestOnlyUnprovenVacancyNeedsPreVote(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		proven := newFollower(t, mode, nil)
		proven.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
		proven.advance(stagger)
		expect.Equalf(t, proven.countEvents(self, election.Started), 1, "election after the end of the coordinator")

		silent := newFollower(t, mode, nil)
		silent.advance(suspicionTimeout + stagger)
		expect.Equalf(t, silent.countEvents(self, election.Started), 0, "election without a pre-vote")
		answer := election.Hold{Held: true}
		silent.probedBy(1, election.None, answer)
		silent.probedBy(2, 5, answer) // it follows another coordinator
		silent.advance(stagger)
		expect.Equalf(t, silent.countEvents(self, election.Started), 0, "election after two votes of five")
		silent.probedBy(5, election.None, answer)
		silent.advance(stagger)
		expect.Equalf(t, silent.countEvents(self, election.Started), 1, "election after a successful pre-vote")
	})
}

// TestFollowerSuspectsWhomItsCoordinatorSuspects, except itself, the coordinator and whom it hears.
func TestFollowerSuspectsWhomItsCoordinatorSuspects(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.probedBy(2, 4, election.Hold{})
	report, hold := []election.ID{1, 2, self, 4}, election.Hold{Held: true, Version: 1, Sent: h.now}
	h.pass(election.Message{Kind: election.Beat, From: 4, Term: term(10), Subject: 4, List: report, Hold: hold})
	expect.EqualSlicesf(t, h.machines[self].Suspects(), election.IDs{1}, "suspects")
}

// TestEndOfAnotherProcessProvesNoVacancy: process 3 doesn't hear the coordinator any more, but 1 and 2 do.
func TestEndOfAnotherProcessProvesNoVacancy(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(suspicionTimeout)
		h.wantFollowed(election.None, self)
		h.probedBy(1, 4, election.Hold{Held: true})
		h.probedBy(2, 4, election.Hold{Held: true})
		h.input(self, election.Input{Kind: election.Ended, Peer: 5, Life: 1})
		h.advance(2 * stagger)
		expect.Equalf(t, h.countEvents(self, election.Started), 0, "elections")
	})
}

// TestLostCoordinatorEndsNoElection: process 2 has missed that 5 led in term 12, and starts an election in it when 5
// has ended. For process 3, that term isn't over.
func TestLostCoordinatorEndsNoElection(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
	h.receive(5, election.Beat, term(12), election.Hold{Held: true})
	h.wantFollowed(5, self)
	h.input(self, election.Input{Kind: election.Ended, Peer: 5, Life: 1})
	h.receive(2, election.Election, term(12), election.Hold{})
	expect.Equalf(t, h.countEvents(self, election.Started), 1, "elections")
}

// probedBy delivers a PROBE of a process that follows a coordinator.
func (h *harness) probedBy(from, follows election.ID, hold election.Hold) {
	h.t.Helper()
	hold.Version = 1
	h.pass(election.Message{Kind: election.Probe, From: from, Term: term(10), Subject: follows, Hold: hold})
}

// answered delivers answers of processes that follow nobody, and have granted terms up to this one.
func (h *harness) answered(granted election.Term, from ...election.ID) {
	h.t.Helper()
	for _, id := range from {
		h.probedBy(id, election.None, election.Hold{Held: true, HighestGranted: granted})
	}
}

// A coordinator that receives no grants any more still reaches the members. They don't have to wait for its silence.
func TestLapsedTenureIsAnnounced(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 3, newRoster(t, 1, 1, 2, 3), nil)
		g.advance(heartbeat)
		g.drop = func(m *election.Message) bool { return m.To == 3 && m.Kind == election.Grant }
		for range lease {
			g.advance(1)
			if g.countEvents(3, election.TenureLost) == 1 {
				break
			}
		}
		g.wantFollowed(election.None, 1, 2, 3)
	})
}

// The announcement names the life whose grants it releases. The members needn't wait until these expire.
func TestAnnouncedLapseReleasesGrants(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 3, newRoster(t, 1, 1, 2, 3), nil)
		g.advance(heartbeat)
		g.drop = func(m *election.Message) bool { return m.To == 3 && m.Kind == election.Grant }
		for g.countEvents(3, election.TenureLost) == 0 && g.now < 3*lease {
			g.advance(1)
		}
		g.capture = func(m *election.Message) bool { return m.To == 2 && m.Kind == election.Grant }
		g.deliver(election.Message{
			Kind: election.Beat, From: 2, To: 1, Term: term(50), Subject: 2,
			Hold: election.Hold{Life: 1, Version: 1, Sent: g.now},
		})
		g.deliverAll()
		expect.Equalf(t, len(g.captured), 1, "grants after the coordinator announced its lapse")
	})
}

// The highest process has won and waits for its grants. The others must wait for it.
func TestLowerProcessesDontCampaignDuringClaim(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 4, newRoster(t, 1, 1, 2, 3, 4), nil)
		g.advance(heartbeat)
		g.crash(4, false) // its grants have to expire
		g.advance(3 * lease)
		g.wantHolder(3)
		for _, id := range []election.ID{1, 2} {
			expect.Equalf(t, g.countEvents(id, election.Started), 0, "process %d: elections", id)
		}
		expect.Equalf(t, g.machines[3].Status().Term, term(2), "tenure in term")
	})
}

// A process postpones its campaign for the claim of a higher process. When that process gives
// its claim up or ends, it doesn't wait any longer.
func TestEndOfClaimNoLongerDelaysCampaign(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for name, end := range map[string]func(*harness){
			"given up": func(h *harness) { h.receive(5, election.Resigned, term(12), election.Hold{}) },
			"crashed":  func(h *harness) { h.input(self, election.Input{Kind: election.Ended, Peer: 5, Life: 1}) },
		} {
			h := newFollower(t, mode, nil)
			h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
			h.receive(5, election.Beat, term(12), election.Hold{})
			h.advance(2 * stagger)
			must.Equalf(t, h.countEvents(self, election.Started), 0,
				"%s: elections during the claim of a higher process", name)
			end(h)
			h.advance(stagger)
			expect.Equalf(t, h.countEvents(self, election.Started), 1,
				"%s: elections after the end of that claim", name)
		}
	})
}

// A process whose tenure lapses grants another one at once, as all other members do.
func TestFormerHolderGrantsAfterLapse(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newCandidate(t, mode, nil)
		for _, id := range []election.ID{1, 2} {
			h.receive(id, election.Grant, term(20), election.Hold{Sent: h.now})
		}
		h.wantHolder(self)
		h.advance(lease)
		h.wantHolder(election.None)
		h.receive(2, election.Beat, term(21), election.Hold{})
		h.wantAnswer(2, election.Grant)
	})
}

// A claim that two of five members refuse and another two don't receive can't succeed in its term.
func TestClaimIsGivenUpWhenTheOthersDontAnswer(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newCandidate(t, mode, nil)
		for range 3 * heartbeat {
			h.receive(1, election.Deny, term(25), election.Hold{})
			h.receive(2, election.Deny, term(25), election.Hold{})
			h.advance(1)
			if h.countSent(election.Resigned) > 0 {
				return
			}
		}
		t.Error("got a continued claim after three heartbeats, want it given up after two")
	})
}

// A process that probes learns which terms the members would refuse.
func TestAnswerToProbeRaisesNextTerm(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.advance(suspicionTimeout)
	h.answered(term(70), 1, 2, 5)
	h.captured = nil
	h.advance(2 * stagger)
	for _, m := range h.captured {
		if m.Kind == election.Election && m.Term == term(71) {
			return
		}
	}
	t.Error("got no election in term 71, want one above the term that was granted")
}

// Process 5 reaches a majority of the new list, but not of the old one, which is
// still in force. Process 3 reaches both.
func TestClaimNeedsMajorityOfEveryList(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2, 3)
		second := newRoster(t, 2, 1, 2, 3, 4, 5).Succeed(first)
		g := &group{t: t, mode: mode}
		for id := election.ID(1); id <= 5; id++ {
			g.start(id, second, nil)
		}
		g.drop = func(m *election.Message) bool {
			return crosses(m, 4, 5) && m.From != 3 && m.To != 3 // only process 3 reaches both sides
		}
		g.advance(2*lease + 10*heartbeat)
		g.wantHolder(3)
	})
}

// The only member of the new list learns without any message that the old list is no longer in force.
func TestPreVoteIsRetriedWithoutMessages(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2)
		second := newRoster(t, 2, 1).Succeed(first, 2)
		g := &group{t: t, mode: mode}
		g.start(1, second.Succeed(first), nil)
		g.advance(2 * lease)
		g.wantHolder(election.None)
		g.adopt(second, 1)
		g.advance(4 * lease)
		g.wantHolder(1)
	})
}

// newLastOfThree returns process 3 of 1 to 5 when 5 and then the coordinator 4 have
// ended. It has just claimed the office in term 11.
func newLastOfThree(t *testing.T, mode office.Mode) *harness {
	t.Helper()
	h := newFollower(t, mode, nil)
	for _, id := range []election.ID{5, 4} {
		h.captured = nil
		h.input(self, election.Input{Kind: election.Ended, Peer: id, Life: 1})
	}
	if h.countSent(election.Beat) == 0 {
		t.Fatal("got no claim after the end of all higher processes, want one")
	}
	return h
}

// A process that has ended grants nothing. A claim that one of the three others
// refuses can't succeed any more, so the process claims the office in a higher term.
func TestClaimDoesNotCountOnEndedMembers(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newLastOfThree(t, mode)
		h.receive(2, election.Grant, term(11), election.Hold{Sent: h.now})
		h.receive(1, election.Deny, term(25), election.Hold{})
		for _, m := range h.captured {
			if m.Kind == election.Beat && m.Term == term(26) {
				return
			}
		}
		t.Error("got no claim in term 26 when the first one was refused, want one at once")
	})
}

// The first campaign of a vacancy needs no pre-vote, the next one does. Nobody has
// answered this process since the vacancy began, so it probes at once.
func TestPreVoteBeginsWithProbes(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		const wait election.Tick = 2 // much less than a heartbeat
		h := newFollower(t, mode, func(c *office.Config) { c.Stagger = wait })
		h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
		h.advance(wait)
		if h.countSent(election.Election) == 0 {
			t.Fatal("got no election after the end of the coordinator, want one")
		}
		h.receive(5, election.Beat, term(11), election.Hold{}) // process 5 wins that election
		h.receive(5, election.Resigned, term(11), election.Hold{})
		h.captured = nil
		h.advance(wait)
		expect.Equalf(t, h.countSent(election.Probe), 4, "probes when the pre-vote began")
		h.captured = nil
		h.answered(term(10), 1, 2)
		h.advance(wait)
		if h.countSent(election.Beat) == 0 {
			t.Error("got no claim after the votes of a majority, want one")
		}
	})
}

// The coordinator has ended, and all others follow its next incarnation. Its BEATs haven't reached this process yet,
// but its answers to probes have.
func TestPreVoteFailsWhileOthersFollowRestartedCoordinator(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, follows := range []election.ID{4, election.None} {
			h := newFollower(t, mode, nil)
			h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
			h.advance(10 * lease) // The first campaign fails, because nobody answers.
			h.captured = nil
			claims := 0
			for range 5 {
				for _, id := range []election.ID{4, 1, 2, 5} {
					answer := election.Hold{Held: true, Life: 2, Version: 1}
					h.pass(election.Message{Kind: election.Probe, From: id, Term: term(11), Subject: follows, Hold: answer})
				}
				h.advance(heartbeat)
				claims += h.countSent(election.Beat) + h.countSent(election.Election)
			}
			expect.Equalf(t, claims > 0, follows == election.None, "others follow %d: sends messages of campaigns", follows)
		}
	})
}

// In a group of twenty the lowest process waits for nineteen others. If its pre-vote
// fails then, it doesn't wait as long again.
func TestSecondCampaignDelayIsShort(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		const members = 20
		h := newIsolated(t, mode, members)
		answer := func(follows election.ID) {
			for id := election.ID(1); id <= members; id++ {
				if id != self && id != members {
					h.probedBy(id, follows, election.Hold{Held: true})
				}
			}
		}
		for range members * stagger / suspicionTimeout {
			answer(members)
			h.advance(suspicionTimeout - 1)
		}
		answer(members)
		h.advance(suspicionTimeout + 1)
		must.Equalf(t, h.countEvents(self, election.Started), 0,
			"elections while all others follow process %d", members)
		answer(election.None)
		h.advance(2 * heartbeat)
		expect.Equalf(t, h.countEvents(self, election.Started), 1,
			"election within two heartbeats after a successful pre-vote")
	})
}

// TestOnlyProcessListensToNobody: a process without memory waits for the messages of a coordinator, unless there is no
// other process on its lists.
func TestOnlyProcessListensToNobody(t *testing.T) {
	one, two := newRoster(t, 2, self), newRoster(t, 1, self, 4)
	for name, c := range map[string]struct {
		list  *election.Roster
		waits bool
	}{
		"the only process":                  {one, false},
		"its predecessor had the same name": {one.Succeed(newRoster(t, 1, self)), false},
		"two processes":                     {two, true},
		"two processes before":              {one.Succeed(two), true},
	} {
		g := &group{t: t, mode: office.Majority}
		g.start(self, c.list, func(c *office.Config) { c.MemoryLost = false })
		g.advance(1)
		expect.Equalf(t, g.countEvents(self, election.Started) == 0, c.waits, "%s: waits", name)
	}
}
