package office_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// electBy makes all processes use an algorithm.
func electBy(t *testing.T, name string) func(*office.Config) {
	t.Helper()
	algorithm, err := catalog.Find(name)
	must.Succeed(t, err)
	return func(c *office.Config) { c.NewElection = algorithm.New }
}

// reply is the reply timeout of the processes.
var reply = election.DefaultTiming(1, 0).Reply

// newRecovering returns process 3 of 1 to 5, which has restarted and recovers. The test
// plays all other processes. Process 1 is down.
func newRecovering(t *testing.T, mode office.Mode, algorithm string) *harness {
	t.Helper()
	h := newAnnouncing(t, mode, algorithm)
	h.answerAnnouncement()
	return h
}

// newAnnouncing returns the same process before any other has answered it.
func newAnnouncing(t *testing.T, mode office.Mode, algorithm string) *harness {
	t.Helper()
	h := newHarness(t, mode, electBy(t, algorithm))
	h.start(self, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
	h.input(self, election.Input{Kind: election.Recover})
	h.wantSent(election.Probe, 1, 2, 4, 5)
	return h
}

// answerAnnouncement makes all processes answer that are alive.
func (h *harness) answerAnnouncement() {
	h.t.Helper()
	for _, id := range []election.ID{2, 4, 5} {
		h.send(election.Message{Kind: election.Probe, From: id, Hold: election.Hold{Held: true}})
	}
	h.advance(reply)
}

// An exhaustive search continues from copies.
func TestCopyKeepsWhoHasNotAnswered(t *testing.T) {
	h := newAnnouncing(t, office.Majority, "Bully")
	clone, now := h.machines[self].Clone(), h.now
	before := clone.Encode(nil, now)
	h.answerAnnouncement()
	expect.EqualSlicesf(t, clone.Encode(nil, now), before, "copy of the state before the answers")
}

// send is pass, and forgets what was captured before.
func (h *harness) send(m election.Message) {
	h.t.Helper()
	h.captured = nil
	h.pass(m)
}

// pass delivers a message that is complete but for its receiver and, if that is 1, the life of its sender.
func (h *harness) pass(m election.Message) {
	h.t.Helper()
	m.To, m.Hold.Life = self, cmp.Or(m.Hold.Life, 1)
	h.input(self, election.Input{Kind: election.Receive, Message: m})
}

// sentTo returns the receivers of the captured messages of a kind.
func (h *harness) sentTo(kind election.Kind) (to []election.ID) {
	for _, m := range h.captured {
		if m.Kind == kind {
			to = append(to, m.To)
		}
	}
	return to
}

func (h *harness) wantSent(kind election.Kind, to ...election.ID) {
	h.t.Helper()
	expect.EqualSlicesf(h.t, h.sentTo(kind), to, "at %d: receivers of %s", h.now, kind)
}

// The TABLE shows the table of the office. The election has its own opinion: whoever
// outranks the coordinator has crashed.
func TestTableOfFollowerShowsStatus(t *testing.T) {
	h := newFollower(t, office.Majority, electBy(t, "StatusTable"))
	h.input(self, election.Input{Kind: election.Suspect, Peer: 1})
	h.send(election.Message{Kind: election.Request, From: 2})
	h.wantSent(election.Table, 2)
	for _, m := range h.captured {
		if m.Kind == election.Table && (m.Subject != 4 || m.Term != term(10) || !m.Hold.Held || m.Hold.Version != 1 ||
			!slices.Equal(m.List, []election.ID{1, 5})) {
			t.Errorf("got %s with list version %d, want coordinator 4 in term 10, and the exceptions 1, crashed, and 5, alive",
				m.Describe(), m.Hold.Version)
		}
	}
}

// The election of a process that can't reach the coordinator elected 5. The coordinator
// still is 3, and answers the INQUIRY.
func TestCoordinatorAnswersInquiryAfterElectionOfAnother(t *testing.T) {
	h := newCandidate(t, office.Available, electBy(t, "RingActiveList"))
	h.wantHolder(self)
	h.send(election.Message{Kind: election.Elect, From: 2, Origin: 5, Subject: 5, Term: term(25), Hops: 2})
	h.send(election.Message{Kind: election.Elect, From: 2, Origin: self, Subject: self, Term: term(25), Hops: 5})
	h.send(election.Message{Kind: election.Inquiry, From: 2, Origin: 1, Subject: 1, Hops: 1})
	h.wantSent(election.Inquiry)
	h.wantSent(election.Reply, 4)
	for _, m := range h.captured {
		if m.Kind == election.Reply && (m.Subject != self || m.Term != term(20) || !m.Hold.Held) {
			t.Errorf("got %s, want coordinator 3 in term 20", m.Describe())
		}
	}
}

// The BEAT of the coordinator arrives while the first neighbor doesn't answer. The
// others should still mark the process NORMAL.
func TestRequestContinuesAfterBeat(t *testing.T) {
	h := newRecovering(t, office.Majority, "StatusTable")
	h.wantSent(election.Request, 4)
	h.receive(5, election.Beat, term(10), election.Hold{Held: true})
	h.captured = nil
	h.advance(reply)
	h.wantSent(election.Request, 5)
	h.send(
		election.Message{
			Kind: election.Table, From: 5, Subject: 5, Term: term(10), Hold: election.Hold{Held: true, Version: 1},
		})
	h.wantSent(election.Update, 1, 2, 4, 5)
}

// The process asks the next neighbor at once if a REQUEST can't be delivered. If it
// can ask nobody, it starts no election before the time at which each process does.
func TestUnansweredRequestEndsRecovery(t *testing.T) {
	h := newRecovering(t, office.Available, "StatusTable")
	for _, neighbor := range []election.ID{4, 5, 1, 2} {
		h.wantSent(election.Request, neighbor)
		request := h.captured[len(h.captured)-1]
		h.captured = nil
		h.input(self, election.Input{Kind: election.Undelivered, Message: request})
	}
	h.advance(suspicionTimeout - reply)
	h.wantSent(election.Request)
	h.wantSent(election.Coordinator)
	h.wantHolder(election.None)
	h.advance(10 * suspicionTimeout)
	h.wantHolder(self)
}

// An OK promises a coordinator, and none announces itself. A bully would start again.
func TestRecoveryElectionIsNotRepeated(t *testing.T) {
	for _, algorithm := range []string{"Bully", "RingAllIDs", "RingChampion", "RingActiveList", "RingSkip"} {
		h := newRecovering(t, office.Available, algorithm)
		last := h.captured[len(h.captured)-1]
		if !last.Kind.Counts() {
			t.Fatalf("%s: got %s, want a message of the recovery", algorithm, last.Describe())
		}
		h.send(election.Message{Kind: election.OK, From: 4, Term: last.Term}) // rings refuse it
		h.captured = nil
		h.advance(suspicionTimeout + 2*stagger - 1 - reply)
		for _, m := range h.captured {
			if m.Kind.Counts() {
				t.Errorf("%s: got %s after the recovery, want none before the first campaign", algorithm, m.Describe())
			}
		}
	}
}

// The OK of a follower promises a coordinator, but the election of a follower ends without
// one. A restarted process that waits for it starts again, although it follows the coordinator.
func TestRecoveryElectionUnderCoordinatorIsRepeatedOnce(t *testing.T) {
	h := newAnnouncing(t, office.Majority, "Bully")
	h.confirm(5, term(10))
	h.receive(5, election.Beat, term(10), election.Hold{Held: true})
	h.send(election.Message{Kind: election.Election, From: 2, Term: term(30)}) // of another restarted process
	h.wantSent(election.Election, 4, 5)
	h.send(election.Message{Kind: election.OK, From: 4, Term: term(30)})
	h.answerAnnouncement()
	elections := 0
	for range 20 * suspicionTimeout {
		h.receive(5, election.Beat, term(10), election.Hold{Held: true})
		h.captured = nil
		h.advance(1)
		for _, m := range h.captured {
			if m.Kind == election.Election && m.To == 4 {
				elections++
				h.send(election.Message{Kind: election.OK, From: 4, Term: m.Term})
			}
		}
	}
	h.wantFollowed(5, self)
	expect.Equalf(t, elections, 1, "elections after the first one")
}

// What another process reports is trusted only until there is a reason to doubt it.
func TestLearnedCoordinatorIsDoubted(t *testing.T) {
	table := election.Message{
		Kind: election.Table, From: 4, Subject: 5, Term: term(10), List: []election.ID{1},
		Hold: election.Hold{Held: true, Version: 1},
	}
	followFour := func(h *harness) {
		h.confirm(4, term(11))
		h.receive(4, election.Beat, term(11), election.Hold{Held: true})
		h.wantFollowed(4, self)
	}
	noSuspects := func(h *harness) { expect.Lenf(h.t, h.machines[self].Suspects(), 0, "suspects") }
	for name, c := range map[string]struct {
		algorithm string // StatusTable by default
		available bool   // in place of Majority
		before    func(*harness, *election.Message)
		then      func(*harness)
		want      election.ID
	}{
		"trusted": {want: 5, then: func(h *harness) {
			s := h.machines[self].Status()
			expect.Equalf(h.t, !s.Electing && s.Term == term(10), true, "term 10: %+v", s)
			expect.EqualSlicesf(h.t, h.machines[self].Suspects(), election.IDs{1}, "suspects")
		}},
		"ended":      {then: func(h *harness) { h.input(self, election.Input{Kind: election.Ended, Peer: 5, Life: 1}) }},
		"resigned":   {then: func(h *harness) { h.receive(5, election.Resigned, term(10), election.Hold{}) }},
		"silent":     {then: func(h *harness) { h.advance(suspicionTimeout) }},
		"superseded": {want: 4, then: followFour},
		"superseded for a while": {then: func(h *harness) {
			followFour(h)
			h.receive(4, election.Resigned, term(11), election.Hold{})
		}},
		"earlier tenure": {want: 5, then: func(h *harness) {
			h.receive(4, election.Beat, term(9), election.Hold{Held: true})
			expect.Equalf(h.t, h.countEvents(self, election.Outdated), 1, "outdated BEATs")
		}},
		"not from the office": {before: func(_ *harness, m *election.Message) { m.Hold.Held = false }},
		"another list": {
			before: func(_ *harness, m *election.Message) { m.Hold.Version = 2 }, want: 5, then: noSuspects,
		},
		"nobody crashed": {before: func(_ *harness, m *election.Message) { m.List = nil }, want: 5, then: noSuspects},
		"itself":         {before: func(_ *harness, m *election.Message) { m.Subject = self }},
		"older than the last one": {before: func(h *harness, _ *election.Message) {
			followFour(h)
			h.receive(4, election.Resigned, term(11), election.Hold{})
		}},
		"alive but not coordinator": {then: func(h *harness) {
			for range 2 * suspicionTimeout {
				h.advance(1)
				h.send(election.Message{Kind: election.Probe, From: 5})
			}
		}},
		"own tenure since": {available: true, then: func(h *harness) {
			h.wantFollowed(5, self)
			h.send(election.Message{Kind: election.Election, From: 2, Term: term(20)})
			h.wantHolder(self)
			h.input(self, election.Input{Kind: election.BecomeIneligible})
		}},
		"not requested": {algorithm: "Bully"},
	} {
		t.Run(name, func(t *testing.T) {
			mode := map[bool]office.Mode{true: office.Available, false: office.Majority}[c.available]
			h, m := newRecovering(t, mode, cmp.Or(c.algorithm, "StatusTable")), table
			if c.before != nil {
				c.before(h, &m)
			}
			h.send(m)
			if c.then != nil {
				c.then(h)
			}
			h.wantFollowed(c.want, self)
			h.wantHolder(election.None)
		})
	}
}

// The process also learns if it is ineligible, for example because its application hasn't started yet.
func TestIneligibleProcessLearnsCoordinator(t *testing.T) {
	for algorithm, answer := range map[string]election.Message{
		"StatusTable":    {Kind: election.Table, From: 4, Subject: 2, Term: term(10)},
		"RingActiveList": {Kind: election.Reply, From: 2, Subject: 2, Origin: self, Term: term(10)},
	} {
		h := newRecovering(t, office.Majority, algorithm)
		h.input(self, election.Input{Kind: election.BecomeIneligible})
		h.input(self, election.Input{Kind: election.Suspect, Peer: 1})
		answer.Hold.Held = true
		h.send(answer)
		h.wantFollowed(2, self)
	}
}

// The answer may come from a group without a coordinator, or name one of lower rank.
func TestRecoveryStartsNoElection(t *testing.T) {
	for coordinator, alive := range map[election.ID][]election.ID{election.None: nil, 2: {3, 4, 5}} {
		h := newRecovering(t, office.Available, "StatusTable")
		h.send(election.Message{
			Kind: election.Table, From: 4, Subject: coordinator, Term: term(10), List: alive,
			Hold: election.Hold{Held: coordinator != election.None},
		})
		h.wantSent(election.Update, 1, 2, 4, 5)
		h.wantSent(election.Coordinator)
	}
	h := newRecovering(t, office.Available, "RingActiveList")
	h.send(
		election.Message{
			Kind: election.Reply, From: 2, Subject: 2, Origin: self, Term: term(10), Hold: election.Hold{Held: true},
		})
	h.wantSent(election.Elect)
}

// A process that an election has reached before doesn't start another one.
func TestRecoveryJoinsElection(t *testing.T) {
	h := newHarness(t, office.Majority, electBy(t, "Bully"))
	h.start(self, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
	h.send(election.Message{Kind: election.Election, From: 1, Term: term(10)})
	h.wantSent(election.Election, 4, 5)
	h.captured = nil
	h.input(self, election.Input{Kind: election.Recover})
	h.advance(reply)
	h.wantSent(election.Election)
}

// A member that is down doesn't answer. The procedure waits for it no longer than for
// any reply, and not at all for a second answer of another member.
func TestRecoveryWaitsForAnswersOfMembers(t *testing.T) {
	h := newAnnouncing(t, office.Majority, "StatusTable")
	for _, id := range []election.ID{1, 2, 4, 4, 1} {
		h.send(election.Message{Kind: election.Probe, From: id, Hold: election.Hold{Held: true}})
	}
	h.send(election.Message{Kind: election.Probe, From: 5})
	h.advance(reply - 1)
	h.wantSent(election.Request)
	h.advance(1)
	h.wantSent(election.Request, 4)
}

func TestProcessRecoversOnce(t *testing.T) {
	h := newRecovering(t, office.Majority, "StatusTable")
	h.captured = nil
	h.input(self, election.Input{Kind: election.Recover})
	holder := newCandidate(t, office.Available, nil)
	holder.input(self, election.Input{Kind: election.Recover})
	for _, g := range []*harness{h, holder} {
		if n := g.countEvents(self, election.Refused); n != 1 || len(g.sentTo(election.Request)) > 0 ||
			len(g.sentTo(election.Probe)) > 0 {
			t.Errorf("got %d refusals and messages %v, want 1 and none", n, g.captured)
		}
	}
}

// All processes start at once. Nobody coordinates, so the recoveries find nobody. The
// highest process is elected once, after the usual wait.
func TestGroupThatStartsElectsOnce(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		inGrantModes(t, func(t *testing.T, mode office.Mode) {
			g := &group{t: t, mode: mode, configure: electBy(t, algorithm)}
			roster := newRoster(t, 1, 1, 2, 3, 4, 5)
			for _, m := range roster.Ring() {
				g.start(m.ID, roster, nil)
			}
			for _, m := range roster.Ring() {
				g.input(m.ID, election.Input{Kind: election.Recover})
			}
			g.advance(suspicionTimeout - 1)
			expect.Lenf(t, g.tokens, 0, "%s: tenures before the usual wait", algorithm)
			g.advance(4 * lease)
			g.wantHolder(5)
			g.wantFollowed(5, 1, 2, 3, 4)
			expect.Lenf(t, g.tokens, 1, "%s: tenures", algorithm)
		})
	}
}

// The coordinator informs a process that has restarted at once: otherwise the process would not react if the
// coordinator ended before its next heartbeat, and the others would wait for it.
func TestRestartedProcessGetsBeatAtOnce(t *testing.T) {
	inEachMode(t, func(t *testing.T, mode office.Mode) {
		roster := newRoster(t, 1, 1, 2, 3, 4, 5)
		g := newGroup(t, mode, 5, roster, electBy(t, "StatusTable"))
		g.advance(heartbeat)
		g.crash(4, true)
		g.start(4, roster, nil)
		beats := 0
		g.drop = func(m *election.Message) bool {
			if m.Kind == election.Beat && m.To == 4 {
				beats++
			}
			return false
		}
		g.input(4, election.Input{Kind: election.Recover})
		g.input(4, election.Input{Kind: election.TimePassed})
		expect.Equalf(t, beats, 1, "BEATs to the restarted process")
		if mode == office.Available {
			g.wantFollowed(5, 4)
		}
	})
}

// The coordinator ends or resigns before its BEAT has arrived at process 4, which has learned of it from a TABLE
// and is the highest one now. It starts an election at once.
func TestEndOfLearnedCoordinatorIsALoss(t *testing.T) {
	// 5 may still be alive after it resigned
	for end, limit := range map[string]election.Tick{"ended": 1, "resigned": 2 * stagger} {
		t.Run(end, func(t *testing.T) {
			roster := newRoster(t, 1, 1, 2, 3, 4, 5)
			g := newGroup(t, office.Available, 5, roster, electBy(t, "StatusTable"))
			g.advance(heartbeat)
			g.crash(4, true)
			g.start(4, roster, nil)
			g.drop = func(m *election.Message) bool { return m.Kind == election.Beat && m.From == 5 && m.To == 4 }
			g.input(4, election.Input{Kind: election.Recover})
			g.advance(1)
			g.wantFollowed(5, 4)
			if end == "ended" {
				g.crash(5, true)
			} else {
				g.deliver(election.Message{
					Kind: election.Resigned, From: 5, To: 4, Term: g.machines[5].Status().Term, Hold: election.Hold{Life: 1},
				})
				g.crash(5, false)
			}
			before := g.now
			g.untilHolder(lease)
			g.wantHolder(4)
			expect.AtMostf(t, g.now-before, limit, "ticks until the next coordinator")
		})
	}
}
